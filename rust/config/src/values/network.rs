//! Addresses and prefixes.

use std::net::IpAddr;

use convoy_types::Prefix;

use super::{Bad, Parsed};
use crate::{number::decimal, text::Text};

/// `address` or `address/prefix`. Unlike ip, refuses net masks and shortened addresses such as `10.1`.
pub(crate) fn interface_address(item: Text<'_>) -> Parsed<Prefix> {
    parts(item, item.text)
}

/// A prefix, and whether host bits had to be cleared.
pub(crate) fn allowed_ip(item: Text<'_>) -> Parsed<(Prefix, bool)> {
    if item.text.starts_with(['+', '-']) {
        let bad = Bad::new(item, PREFIX);
        return Err(bad.help("`+` and `-` are for changes to a running interface"));
    }
    let prefix = parts(item, &item.compact())?;
    Ok((prefix.network(), prefix.network() != prefix))
}

/// An address without a prefix.
pub(crate) fn ip_address(item: Text<'_>) -> Parsed<IpAddr> {
    item.text.parse().map_err(|_| {
        let bad = Bad::new(item, "an IP address");
        match item.text.split_once('/') {
            Some((address, _)) if address.parse::<IpAddr>().is_ok() => {
                bad.help("write the address alone")
            }
            _ => bad,
        }
    })
}

const PREFIX: &str = "a prefix such as 10.0.0.0/24 or fd00::/64";

/// A prefix with its host bits; without a length, the address alone. `text` is `item` as it is parsed.
fn parts(item: Text<'_>, text: &str) -> Parsed<Prefix> {
    if item.is_empty() {
        return Err(Bad::new(item, PREFIX).help("remove the extra comma"));
    }
    if item
        .text
        .split(|c: char| c.is_whitespace())
        .filter(|part| part.contains('/'))
        .count()
        > 1
    {
        return Err(Bad::new(item, PREFIX).help("separate the prefixes by commas"));
    }
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        let whole = item
            .split_once('/')
            .map_or(item, |(address, _)| address.trim());
        return Err(Bad::new(whole, PREFIX));
    };
    let host = Prefix::host(address);
    let Some(prefix) = prefix else {
        return Ok(host);
    };
    let length = decimal(prefix).and_then(|length| Prefix::new(address, length));
    length.ok_or_else(|| {
        let at = item
            .split_once('/')
            .map_or(item, |(_, prefix)| prefix.trim());
        let bad = Bad::new(at, format!("a prefix length from 0 to {}", host.length()));
        match mask_length(prefix) {
            Some(length) => bad.help(format!(
                "this mask has the length {length}: write /{length}"
            )),
            None => bad,
        }
    })
}

/// The length of a prefix that is written as a mask: 24 for `255.255.255.0`.
fn mask_length(text: &str) -> Option<u32> {
    let mask = text.parse::<std::net::Ipv4Addr>().ok()?.to_bits();
    (mask.leading_ones() + mask.trailing_zeros() == 32).then(|| mask.leading_ones())
}
