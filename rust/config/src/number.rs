//! Numbers as wg reads them.

/// Digits only: `from_str` also accepts a leading `+`.
pub(crate) fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_decimal = text.bytes().all(|b| b.is_ascii_digit());
    is_decimal.then(|| text.parse().ok()).flatten()
}

/// Digits only, without `0x`.
pub(crate) fn hexadecimal(digits: &str) -> Option<u32> {
    let is_hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = is_hexadecimal.then(|| u32::from_str_radix(digits, 16));
    number?.ok()
}
