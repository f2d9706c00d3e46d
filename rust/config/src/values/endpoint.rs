//! Endpoints and names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Bad, Parsed};
use crate::{
    base64::may_be_a_key,
    config::{Endpoint, Host, SearchDomain},
    number::decimal,
    text::Text,
};

/// An endpoint, and whether it is an IPv6 address that lacks its brackets.
///
/// Unlike wg, refuses service names, port 0, and inet_aton(3)'s short forms, such as `10.1`.
pub(crate) fn endpoint(value: Text<'_>) -> Parsed<(Endpoint, bool)> {
    let text = value.compact();
    let (host, port, is_bracketed) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((host, rest)) = rest.split_once(']') else {
                return Err(Bad::new(value, "a `]` after the IPv6 address"));
            };
            (host, rest.strip_prefix(':'), true)
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port), false),
            None => (text.as_str(), None, false),
        },
    };
    let Some(port) = port else {
        return Err(without_port(value, &text));
    };
    let host = match ipv6(host) {
        Some(host) => host,
        None if is_bracketed => {
            let bad = Bad::new(value, "an IPv6 address within the brackets");
            return Err(bad.help("write IPv4 addresses and names without brackets"));
        }
        None if host.contains(':') => return Err(without_port(value, &text)),
        None => host_name(value, host)?,
    };
    let is_ambiguous = !is_bracketed && !matches!(host, Host::Name(_) | Host::Ip(IpAddr::V4(_)));
    match decimal(port).filter(|port| *port > 0) {
        Some(port) => Ok((Endpoint { host, port }, is_ambiguous)),
        None => Err(bad_port(value)),
    }
}

/// A server, whose port may be left out: then it is `port`. An IPv6 address without brackets has none.
pub(crate) fn server(value: Text<'_>, port: u16) -> Parsed<Endpoint> {
    let text = value.compact();
    let in_brackets = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let host = match ipv6(in_brackets.unwrap_or(&text)) {
        Some(host) => host,
        None if text.contains(':') || in_brackets.is_some() => {
            let (endpoint, _) = endpoint(value)?;
            return possible(value, endpoint);
        }
        None => host_name(value, &text)?,
    };
    possible(value, Endpoint { host, port })
}

fn possible(value: Text<'_>, endpoint: Endpoint) -> Parsed<Endpoint> {
    match endpoint.host {
        Host::Zoned(..) => Err(Bad::new(value, "an address without a zone")),
        Host::Ip(address) if !is_possible(address) => {
            Err(Bad::new(value, "an address that a server can have"))
        }
        Host::Ip(_) | Host::Name(_) => Ok(endpoint),
    }
}

fn is_possible(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// A search domain, or one that is only for routing look-ups (`~name`).
pub(crate) fn domain(item: Text<'_>) -> Parsed<SearchDomain> {
    let (route_only, name) = match item.text.strip_prefix('~') {
        Some(name) => (true, name),
        None => (false, item.text),
    };
    let root = name == ".";
    let name = name.strip_suffix('.').unwrap_or(name);
    if !root && !is_name(name) {
        return Err(Bad::new(item, "an IP address or a domain's name"));
    }
    let name = name.to_owned();
    Ok(SearchDomain { name, route_only })
}

fn bad_port(value: Text<'_>) -> Bad {
    let bad = Bad::new(value, "a port from 1 to 65535 after the last colon");
    let Some(colon) = value.text.rfind(':') else {
        return bad;
    };
    let port = Text {
        start: value.start + colon + 1,
        text: &value.text[colon + 1..],
    };
    match port.is_empty() {
        true => bad,
        false => Bad::new(port.trim(), "a port from 1 to 65535"),
    }
}

fn without_port(value: Text<'_>, text: &str) -> Bad {
    let host = text.trim_matches(['[', ']']);
    let bad = Bad::new(value, "IPv4:port, [IPv6]:port or name:port");
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) => bad.help(format!("add the port: [{v6}]:51820")),
        Ok(IpAddr::V4(v4)) => bad.help(format!("add the port: {v4}:51820")),
        Err(_) if is_name(host) && !may_be_a_key(host) => {
            bad.help(format!("add the port: {host}:51820"))
        }
        Err(_) => bad,
    }
}

fn ipv6(text: &str) -> Option<Host> {
    if let Some((address, zone)) = text.split_once('%') {
        let is_zone = (1..=15).contains(&zone.len())
            && zone
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"/%:[]".contains(&b));
        let address = address.parse::<Ipv6Addr>().ok()?;
        return is_zone.then(|| Host::Zoned(address, zone.to_owned()));
    }
    let address = text.parse::<Ipv6Addr>().ok()?;
    Some(Host::Ip(address.to_canonical()))
}

fn host_name(value: Text<'_>, host: &str) -> Parsed<Host> {
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(address.into()));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    let looks_like_an_address = decimal::<u128>(last).is_some()
        || last
            .strip_prefix("0x")
            .is_some_and(|it| it.bytes().all(|b| b.is_ascii_hexdigit()));
    if !name.is_empty() && looks_like_an_address {
        return Err(Bad::new(
            value,
            "an IPv4 address of four numbers from 0 to 255",
        ));
    }
    if is_name(name) {
        return Ok(Host::Name(host.to_owned()));
    }
    let bad = Bad::new(value, "an IP address or a host's name");
    match host.is_ascii() {
        true => Err(bad),
        false => Err(bad.help("write the name in its ASCII form (xn--…)")),
    }
}

/// Returns whether this is a domain's name in ASCII; without a final dot.
fn is_name(name: &str) -> bool {
    let is_character = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_character);
    name.len() <= 253 && name.split('.').all(is_label)
}
