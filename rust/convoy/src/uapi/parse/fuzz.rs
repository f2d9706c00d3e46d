//! Any bytes as the lines of a request: what is taken is what the specification allows, and comes
//! back when it is listed and read again.

use std::{net::IpAddr, time::Duration};

use convoy_fuzz::{Result, Unstructured};
use convoy_proto::config::{PeerSnapshot, Snapshot};

use super::*;
use crate::uapi::write::listing;

#[test]
fn fuzz_requests() {
    convoy_fuzz::fuzz!(4000, 1500, requests);
}

fn requests(input: &mut Unstructured<'_>) -> Result<()> {
    let mut parser = SetParser::new();
    let mut in_peer = false;
    for _ in 0..40 {
        let Ok(line) = line(input, in_peer) else {
            break;
        };
        let is_allowed = is_allowed(&line, in_peer);
        let taken = parser.line(&line);
        let shown = String::from_utf8_lossy(&line);
        assert_eq!(taken.is_ok(), is_allowed, "{shown:?}: {taken:?}");
        // A refused line ends the request; here it must only have changed nothing.
        in_peer |= is_allowed && line.starts_with(b"public_key=");
    }
    let update = parser.finish();
    let text = text_of(&update);
    assert_eq!(text_of(&parsed(&text)), text);
    let snapshot = snapshot_of(&update);
    let listed = parsed(&settable(&listing(&snapshot)));
    assert_eq!(facts(&snapshot_of(&listed)), facts(&snapshot));
    Ok(())
}

fn parsed(text: &str) -> DeviceUpdate {
    let mut parser = SetParser::new();
    for line in text.lines() {
        parser
            .line(line.as_bytes())
            .expect("it was written by the book");
    }
    parser.finish()
}

/// The specification, once more.
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
    let is_v4 = host.parse::<std::net::Ipv4Addr>().is_ok();
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

/// The request that asks for just this.
fn text_of(update: &DeviceUpdate) -> String {
    let zero = [0; 32];
    let mut lines = Vec::new();
    if let Some(key) = &update.private_key {
        let key = key.as_ref().map_or(zero, |key| key.0);
        lines.push(format!("private_key={}", hex::encode(key)));
    }
    lines.extend(update.listen_port.map(|port| format!("listen_port={port}")));
    lines.extend(update.fwmark.map(|mark| format!("fwmark={mark}")));
    lines.extend(
        update
            .replace_peers
            .then(|| "replace_peers=true".to_owned()),
    );
    for peer in &update.peers {
        lines.push(format!("public_key={}", hex::encode(peer.public_key.0)));
        lines.extend(peer.remove.then(|| "remove=true".to_owned()));
        lines.extend(peer.update_only.then(|| "update_only=true".to_owned()));
        if let Some(key) = &peer.preshared_key {
            let key = key.as_ref().map_or(zero, |key| key.0);
            lines.push(format!("preshared_key={}", hex::encode(key)));
        }
        lines.extend(peer.endpoint.map(|endpoint| format!("endpoint={endpoint}")));
        let keepalive = peer.persistent_keepalive;
        lines.extend(keepalive.map(|s| format!("persistent_keepalive_interval={s}")));
        lines.extend(
            peer.replace_allowed_ips
                .then(|| "replace_allowed_ips=true".to_owned()),
        );
        for change in &peer.allowed_ips {
            let AllowedIp { address, prefix } = change.network;
            let minus = if change.remove { "-" } else { "" };
            lines.push(format!("allowed_ip={minus}{address}/{prefix}"));
        }
    }
    lines.join("\n")
}

/// A device that the update was made on, each peer by itself.
fn snapshot_of(update: &DeviceUpdate) -> Snapshot {
    let peers = update.peers.iter().map(|peer| PeerSnapshot {
        public_key: peer.public_key,
        preshared_key: peer.preshared_key.clone().flatten(),
        endpoint: peer.endpoint,
        last_handshake: None,
        persistent_keepalive: Duration::from_secs(peer.persistent_keepalive.unwrap_or(0).into()),
        rx_bytes: u64::MAX,
        tx_bytes: u64::MAX,
        rx_packets: 0,
        tx_packets: 0,
        allowed_ips: peer
            .allowed_ips
            .iter()
            .map(|change| change.network)
            .collect(),
    });
    Snapshot {
        private_key: update.private_key.clone().flatten(),
        listen_port: update.listen_port.unwrap_or(0),
        fwmark: update.fwmark.unwrap_or(0),
        peers: peers.collect(),
        ..Snapshot::default()
    }
}

/// Without the lines that only tell.
fn settable(listing: &str) -> String {
    let told = [
        "last_handshake_time_sec=",
        "last_handshake_time_nsec=",
        "tx_bytes=",
        "rx_bytes=",
    ];
    let is_settable = |line: &&str| !told.iter().any(|key| line.starts_with(key));
    let lines: Vec<_> = listing.lines().filter(is_settable).collect();
    lines.join("\n")
}

/// Everything that a listing holds, keys included, which do not show themselves.
fn facts(snapshot: &Snapshot) -> String {
    let device = snapshot.private_key.as_ref().map(|key| key.0);
    let peers = snapshot.peers.iter().map(|peer| {
        let preshared = peer.preshared_key.as_ref().map(|key| key.0);
        format!(
            "{:?} {preshared:?} {:?} {:?} {:?}",
            peer.public_key.0, peer.endpoint, peer.persistent_keepalive, peer.allowed_ips
        )
    });
    let ports = (snapshot.listen_port, snapshot.fwmark);
    format!("{device:?} {ports:?} {:?}", peers.collect::<Vec<_>>())
}

const KEYS: [&str; 13] = [
    "public_key",
    "allowed_ip",
    "endpoint",
    "preshared_key",
    "persistent_keepalive_interval",
    "replace_allowed_ips",
    "remove",
    "update_only",
    "protocol_version",
    "private_key",
    "listen_port",
    "fwmark",
    "replace_peers",
];

/// Anything, or a line that looks like one of a request.
fn line(input: &mut Unstructured<'_>, in_peer: bool) -> Result<Vec<u8>> {
    if input.is_empty() {
        return Err(convoy_fuzz::arbitrary::Error::NotEnoughData);
    }
    if input.ratio(1, 32)? {
        let len = input.int_in_range(0..=40)?;
        return Ok(input.bytes(len.min(input.len()))?.to_vec());
    }
    let fitting = if in_peer { &KEYS[..9] } else { &KEYS[8..] };
    let key = match input.int_in_range(0..=15u8)? {
        0 => *input.choose(&KEYS)?,
        1 => "public_key",
        _ => *input.choose(fitting)?,
    };
    let value = match key {
        "public_key" | "private_key" | "preshared_key" => {
            let byte = input.int_in_range(0..=9u8)?;
            hex::encode([byte * 28; 32])
        }
        "endpoint" => format!("{}:{}", host(input)?, number(input)?),
        "allowed_ip" => {
            let minus = if input.ratio(1, 4)? { "-" } else { "" };
            let prefix: u8 = input.int_in_range(0..=130)?;
            let zero = if input.ratio(1, 8)? { "0" } else { "" };
            format!("{minus}{}/{zero}{prefix}", address(input)?)
        }
        "listen_port" | "fwmark" | "persistent_keepalive_interval" => number(input)?,
        "protocol_version" => "1".to_owned(),
        _ => "true".to_owned(),
    };
    let mut line = format!("{key}={value}").into_bytes();
    if input.ratio(1, 16)? {
        let at = input.choose_index(line.len())?;
        line[at] = input.arbitrary()?;
    }
    if input.ratio(1, 32)? {
        line.truncate(input.choose_index(line.len())?);
    }
    Ok(line)
}

fn number(input: &mut Unstructured<'_>) -> Result<String> {
    Ok(match input.int_in_range(0..=7u8)? {
        0 => input.arbitrary::<u32>()?.to_string(),
        1 => format!("0{}", input.arbitrary::<u16>()?),
        2 => input
            .choose(&["", "+1", "65535", "65536", "4294967296", "0x1", "٣"])?
            .to_string(),
        _ => input.arbitrary::<u16>()?.to_string(),
    })
}

fn host(input: &mut Unstructured<'_>) -> Result<String> {
    let address = address(input)?;
    Ok(match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let zones = ["", "", "", "%1", "%lo", "%4294967295", "%", "%01"];
            format!("[{v6}{}]", input.choose(&zones)?)
        }
    })
}

fn address(input: &mut Unstructured<'_>) -> Result<IpAddr> {
    Ok(match input.int_in_range(0..=3u8)? {
        0 => IpAddr::from(input.arbitrary::<[u8; 16]>()?),
        // Mapped: an endpoint becomes one of IPv4.
        1 => IpAddr::V6(std::net::Ipv4Addr::from(input.arbitrary::<[u8; 4]>()?).to_ipv6_mapped()),
        _ => IpAddr::from(input.arbitrary::<[u8; 4]>()?),
    })
}
