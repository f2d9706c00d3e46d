//! Keys as files and people write them: 32 bytes in base64.

use base64::{Engine, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

/// The characters of a key, `=` included.
pub const ENCODED_KEY_LENGTH: usize = 44;

/// The key that `text` is, if it is one in its only valid form, as wg requires.
#[must_use]
pub fn decode_key(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    // The decoder reserves a multiple of three.
    let mut decoded = Zeroizing::new([0; 33]);
    let length = STANDARD.decode_slice(text, &mut decoded[..]).ok()?;
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(decoded[..length].first_chunk::<32>()?);
    (length == 32).then_some(key)
}

/// A key in base64.
#[must_use]
pub fn encode_key(key: &[u8; 32]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(ENCODED_KEY_LENGTH));
    STANDARD.encode_string(key, &mut text);
    text
}

/// Returns whether a word may be a key, perhaps without its last digits.
pub(crate) fn may_be_a_key(word: &str) -> bool {
    let digits = word.strip_suffix('=').unwrap_or(word);
    let is_whole = digits.len() < word.len() && digits.len() >= DIGITS_OF_A_KEY;
    let has = |kind: fn(&char) -> bool| digits.chars().any(|digit| kind(&digit));
    // As almost all random digits, and hardly any path or name.
    let is_mixed = has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
        && has(char::is_ascii_digit)
        && digits.matches('/').count() <= SLASHES_OF_A_KEY;
    digits.chars().all(is_base64) && (is_whole || is_mixed && digits.len() >= DIGITS_OF_A_CUT_KEY)
}

/// Returns whether this is a digit of base64.
pub(crate) fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '+' || c == '/'
}

/// 43 digits and `=` are 32 bytes.
const DIGITS_OF_A_KEY: usize = 43;
/// A few got lost when it was copied.
const DIGITS_OF_A_CUT_KEY: usize = 40;
/// One key in two hundred has more.
const SLASHES_OF_A_KEY: usize = 3;
