//! A second implementation of the specification: which lines a request may hold and what they mean.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// In the order of the canonical text, which lists the allowed IPs last.
const KEYS: [&str; 11] = [
    "private_key",
    "listen_port",
    "fwmark",
    "replace_peers",
    "public_key",
    "remove",
    "update_only",
    "preshared_key",
    "endpoint",
    "persistent_keepalive_interval",
    "replace_allowed_ips",
];

/// The request so far.
pub(crate) struct Request(Vec<Section>);

/// The device, or one peer.
#[derive(Default)]
struct Section {
    /// By position in [`KEYS`].
    values: BTreeMap<usize, String>,
    allowed_ips: Vec<String>,
    /// Number of them that a later line has revoked.
    revoked: usize,
}

impl Request {
    pub(crate) fn new() -> Self {
        Self(vec![Section::default()])
    }

    pub(crate) fn has_peers(&self) -> bool {
        self.0.len() > 1
    }

    /// Takes a line if it is valid here.
    pub(crate) fn take(&mut self, line: &[u8]) -> bool {
        if !is_allowed(line, self.has_peers()) {
            return false;
        }
        let text = str::from_utf8(line).expect("an allowed line is UTF-8");
        let (key, value) = text.split_once('=').expect("a key and a value");
        if key == "public_key" {
            self.0.push(Section::default());
        }
        let section = self.0.last_mut().expect("the device's section");
        section.take(key, value);
        true
    }

    /// Each setting once, in one order and spelling.
    pub(crate) fn canonical(&self) -> String {
        let lines = self.0.iter().flat_map(Section::lines);
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Section {
    fn take(&mut self, key: &str, value: &str) {
        let value = match key {
            "protocol_version" => return,
            "allowed_ip" => return self.allowed_ips.push(canonical_network(value)),
            "private_key" => clamped(value),
            "public_key" | "preshared_key" => value.to_ascii_lowercase(),
            "endpoint" => canonical_endpoint(value),
            "listen_port" | "fwmark" | "persistent_keepalive_interval" => canonical_number(value),
            _ => value.to_owned(),
        };
        if key == "replace_allowed_ips" {
            let removals: Vec<_> = self.allowed_ips[self.revoked..]
                .iter()
                .map(|change| format!("-{}", change.trim_start_matches('-')))
                .collect();
            self.allowed_ips.extend(removals);
            self.revoked = self.allowed_ips.len();
        }
        let place = KEYS.iter().position(|other| *other == key);
        self.values.insert(place.expect("an allowed key"), value);
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let values = self.values.iter();
        let values = values.map(|(place, value)| format!("{}={value}", KEYS[*place]));
        let networks = self.allowed_ips.iter();
        values.chain(networks.map(|network| format!("allowed_ip={network}")))
    }
}

fn clamped(key: &str) -> String {
    let mut bytes = hex::decode(key).expect("digits");
    if bytes != [0; 32] {
        bytes[0] &= 0b1111_1000;
        bytes[31] = bytes[31] & 0b0111_1111 | 0b0100_0000;
    }
    hex::encode(bytes)
}

fn canonical_number(value: &str) -> String {
    let significant = value.trim_start_matches('0');
    let is_zero = significant.is_empty();
    if is_zero { "0" } else { significant }.to_owned()
}

fn canonical_endpoint(value: &str) -> String {
    let (host, port) = value.rsplit_once(':').expect("a port");
    let port = canonical_number(port);
    let Some(host) = host.strip_prefix('[') else {
        return format!("{host}:{port}");
    };
    let host = host.trim_end_matches(']');
    let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
    let address: Ipv6Addr = address.parse().expect("an address");
    let zone = match zone {
        "lo" => "1".to_owned(),
        number => canonical_number(number),
    };
    match (address.to_ipv4_mapped(), &*zone) {
        (Some(v4), _) => format!("{v4}:{port}"),
        (None, "0") => format!("[{address}]:{port}"),
        (None, zone) => format!("[{address}%{zone}]:{port}"),
    }
}

fn canonical_network(value: &str) -> String {
    let (minus, network) = match value.strip_prefix('-') {
        Some(network) => ("-", network),
        None => ("", value),
    };
    let (address, prefix) = network.split_once('/').expect("a prefix");
    let bits: u32 = prefix.parse().expect("a number");
    let masked: IpAddr = match address.parse().expect("an address") {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    };
    format!("{minus}{masked}/{bits}")
}

fn is_allowed(line: &[u8], in_peer: bool) -> bool {
    let Some(at) = line.iter().position(|byte| *byte == b'=') else {
        return false;
    };
    let (key, value) = (&line[..at], &line[at + 1..]);
    let Ok(value) = std::str::from_utf8(value) else {
        return false;
    };
    let is_key = value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit());
    match (key, in_peer) {
        (b"public_key", _) | (b"private_key", false) | (b"preshared_key", true) => is_key,
        (b"listen_port", false) | (b"persistent_keepalive_interval", true) => {
            is_number(value, u16::MAX.into())
        }
        (b"fwmark", false) => is_number(value, u32::MAX.into()),
        (b"replace_peers", false) | (b"update_only" | b"remove" | b"replace_allowed_ips", true) => {
            value == "true"
        }
        (b"protocol_version", true) => value == "1",
        (b"endpoint", true) => is_endpoint(value),
        (b"allowed_ip", true) => is_allowed_ip(value),
        _ => false,
    }
}

fn is_number(value: &str, max: u128) -> bool {
    let significant = value.trim_start_matches('0');
    !value.is_empty()
        && value.bytes().all(|b| b.is_ascii_digit())
        && significant.len() <= 30
        && (significant.is_empty() || significant.parse::<u128>().is_ok_and(|n| n <= max))
}

fn is_endpoint(value: &str) -> bool {
    let Some((host, port)) = value.rsplit_once(':') else {
        return false;
    };
    let is_v4 = host.parse::<Ipv4Addr>().is_ok();
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_v6 = inner.is_some_and(|inner| {
        let (address, zone) = match inner.split_once('%') {
            Some((address, zone)) => (address, Some(zone)),
            None => (inner, None),
        };
        let is_zone = zone.is_none_or(|zone| is_number(zone, u32::MAX.into()) || zone == "lo");
        address.parse::<Ipv6Addr>().is_ok() && is_zone
    });
    (is_v4 || is_v6) && is_number(port, u16::MAX.into())
}

fn is_allowed_ip(value: &str) -> bool {
    let value = value.strip_prefix('-').unwrap_or(value);
    let Some((address, prefix)) = value.split_once('/') else {
        return false;
    };
    let is_padded = prefix.len() > 1 && prefix.starts_with('0');
    let bits = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !is_padded && is_number(prefix, bits)
}
