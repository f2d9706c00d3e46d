//! Values that requests and listings share: written and read here, whichever side does it.

use std::{
    fmt::{self, Write},
    net::{Ipv6Addr, SocketAddr, SocketAddrV6},
    str::FromStr,
};

use zeroize::Zeroizing;

/// Writes the line of a key of 32 bytes; the UAPI writes "no key" as zeros.
pub(crate) fn key_line(text: &mut String, name: &str, key: Option<&[u8; 32]>) -> fmt::Result {
    let mut digits = Zeroizing::new([0; 64]);
    // INVARIANT: 32 bytes are 64 digits, and hexadecimal digits are UTF-8.
    hex::encode_to_slice(key.unwrap_or(&[0; 32]), &mut *digits).expect("64 digits hold 32 bytes");
    let digits = std::str::from_utf8(&*digits).expect("digits are UTF-8");
    writeln!(text, "{name}={digits}")
}

/// Reads a key of 32 bytes; `None` if it is none.
pub(crate) fn key(value: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(value, &mut *bytes).ok()?;
    Some(bytes)
}

/// Returns a key unless it is all zeros, which stand for none.
pub(crate) fn non_zero(key: &Zeroizing<[u8; 32]>) -> Option<&Zeroizing<[u8; 32]>> {
    key.iter().any(|byte| *byte != 0).then_some(key)
}

/// Reads an address and port whose zone, if any, has a name or a number: the standard library parses only numeric
/// zones.
pub(crate) fn endpoint(value: &str) -> Option<SocketAddr> {
    if let Ok(address) = value.parse() {
        return Some(address);
    }
    let (host, port) = value.strip_prefix('[')?.rsplit_once("]:")?;
    let (address, zone) = host.split_once('%')?;
    let scope = nix::net::if_::if_nametoindex(zone).ok()?;
    let address: Ipv6Addr = address.parse().ok()?;
    Some(SocketAddrV6::new(address, decimal(port)?, 0, scope).into())
}

/// Accepts digits only; `from_str` would accept a leading `+`.
pub(crate) fn decimal<T: FromStr>(value: &str) -> Option<T> {
    let digits_only = value.bytes().all(|byte| byte.is_ascii_digit());
    digits_only.then(|| value.parse().ok()).flatten()
}
