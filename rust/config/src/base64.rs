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
