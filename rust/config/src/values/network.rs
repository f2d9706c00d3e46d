//! Addresses and prefixes.

use std::net::IpAddr;

use convoy_types::Prefix;

use super::{Bad, Parsed};
use crate::{number::decimal, text::Text};

/// `address` or `address/prefix`. Unlike ip, refuses net masks and shortened addresses such as `10.1`.
pub(crate) fn interface_address(item: Text<'_>) -> Parsed<Prefix> {
    let (address, prefix) = parts(item, item.text)?;
    Prefix::new(address, prefix).ok_or_else(|| Bad::new(item, PREFIX))
}

/// A prefix, and whether host bits had to be cleared.
pub(crate) fn allowed_ip(item: Text<'_>) -> Parsed<(Prefix, bool)> {
    if item.text.starts_with(['+', '-']) {
        let bad = Bad::new(item, PREFIX);
        return Err(bad.help("`+` and `-` are for changes to a running interface"));
    }
    let (address, prefix) = parts(item, &item.compact())?;
    let network = Prefix::network_of(address, prefix).ok_or_else(|| Bad::new(item, PREFIX))?;
    Ok((network, network.address() != address))
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

/// An address and the length of its prefix, by default all of it. `text` is `item` as it is parsed.
fn parts(item: Text<'_>, text: &str) -> Parsed<(IpAddr, u8)> {
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
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let Some(prefix) = prefix else {
        return Ok((address, longest));
    };
    let length = decimal(prefix).filter(|length| *length <= longest);
    length.map(|length| (address, length)).ok_or_else(|| {
        let at = item
            .split_once('/')
            .map_or(item, |(_, prefix)| prefix.trim());
        let bad = Bad::new(at, format!("a prefix length from 0 to {longest}"));
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
