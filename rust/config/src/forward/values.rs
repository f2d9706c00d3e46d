//! Parses the values of a forwarder's file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Side, UserPassword};
use crate::{
    config::Host,
    number::decimal,
    text::Text,
    values::{Bad, Parsed, endpoint},
};

const BUFFERS: std::ops::RangeInclusive<usize> = 8 << 10..=256 << 10;

/// `[address:]port:host:port`.
pub(super) fn forward(value: Text<'_>, side: Side) -> Parsed<(Vec<SocketAddr>, String, u16)> {
    let expected = "`port:host:port` or `address:port:host:port`";
    let fields = fields(value);
    let (listening, host) = match fields.as_slice() {
        [_, host, _] => (
            Text {
                start: value.start,
                text: fields[0].text,
            },
            host,
        ),
        [_, port, host, _] => {
            let length = port.end() - value.start;
            (
                Text {
                    start: value.start,
                    text: &value.text[..length],
                },
                host,
            )
        }
        _ => return Err(Bad::new(value, expected).help("put IPv6 addresses in brackets")),
    };
    let target = Text {
        start: host.start,
        text: &value.text[host.start - value.start..],
    };
    let (target, _) = endpoint(target)?;
    let host = match target.host {
        Host::Ip(address) => address.to_string(),
        Host::Name(name) => name,
        Host::Zoned(..) => return Err(Bad::new(value, "an address without a zone")),
    };
    Ok((listen(listening, side)?, host, target.port))
}

/// `[address:]port`. Without an address: this host's loopback, or all addresses inside.
pub(super) fn listen(value: Text<'_>, side: Side) -> Parsed<Vec<SocketAddr>> {
    let fields = fields(value);
    let (address, port) = match fields.as_slice() {
        [port] => (None, port),
        [address, port] => (Some(address), port),
        _ => {
            return Err(
                Bad::new(value, "`port` or `address:port`").help("put IPv6 addresses in brackets")
            );
        }
    };
    let port = decimal(port.text).ok_or_else(|| Bad::new(*port, "a port"))?;
    let both = |v4: Ipv4Addr, v6: Ipv6Addr| vec![(v4, port).into(), (v6, port).into()];
    match address {
        None if side == Side::Host => Ok(both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)),
        None => Ok(both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED)),
        Some(address) if address.is("localhost") => {
            Ok(both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST))
        }
        Some(address) if address.text == "*" => {
            Ok(both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED))
        }
        Some(address) => {
            let text = address.text.trim_start_matches('[').trim_end_matches(']');
            let parsed = text.parse::<IpAddr>();
            let parsed = parsed.map_err(|_| {
                Bad::new(*address, "an IP address of this host, `localhost` or `*`")
            })?;
            Ok(vec![(parsed, port).into()])
        }
    }
}

/// A number of bytes, such as `64K`.
pub(crate) fn buffer(value: Text<'_>) -> Parsed<usize> {
    let text = value.compact();
    let digits = text.trim_end_matches(['k', 'K']);
    let unit = if digits.len() < text.len() {
        1 << 10
    } else {
        1
    };
    let bytes = decimal::<usize>(digits).and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| BUFFERS.contains(bytes))
        .ok_or_else(|| Bad::new(value, "a size from `8K` to `256K`"))
}

/// The text of a file with `user:password`.
pub(crate) fn login(text: &str) -> Option<UserPassword> {
    let (user, password) = text.lines().next()?.split_once(':')?;
    let is_whole = !user.is_empty() && !password.is_empty();
    is_whole.then(|| UserPassword {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

/// The parts between colons, except those within brackets.
fn fields(value: Text<'_>) -> Vec<Text<'_>> {
    let mut is_inside = false;
    value
        .text
        .split(|c| {
            is_inside = (is_inside || c == '[') && c != ']';
            c == ':' && !is_inside
        })
        .scan(value.start, |start, text| {
            let field = Text {
                start: *start,
                text,
            };
            *start = field.end() + 1;
            Some(field)
        })
        .collect()
}
