//! Generates lines of requests, valid and invalid.

use std::net::{IpAddr, Ipv4Addr};

use convoy_fuzz::{Result, Unstructured};

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

/// Random bytes, or a line that resembles one of a request.
pub(crate) fn line(input: &mut Unstructured<'_>, in_peer: bool) -> Result<Vec<u8>> {
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
        // IPv4-mapped: as an endpoint it becomes IPv4.
        1 => IpAddr::V6(Ipv4Addr::from(input.arbitrary::<[u8; 4]>()?).to_ipv6_mapped()),
        _ => IpAddr::from(input.arbitrary::<[u8; 4]>()?),
    })
}
