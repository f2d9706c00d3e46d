//! Parses a `set` request into a [`DeviceUpdate`]. Pure, and all or nothing.
//!
//! Keys and values are those of
//! <https://www.wireguard.com/xplatform/#configuration-protocol>. As in wireguard-go, an unknown
//! key, or a key of the other section, is an error.

use std::net::SocketAddr;

use convoy_proto::config::{
    AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix, PresharedKey, PrivateKey, PublicKey,
};
use nix::errno::Errno;
use zeroize::Zeroizing;

use crate::values::{self, decimal, non_zero};

/// Parses one `set` request line by line.
#[derive(Debug)]
pub(super) struct SetParser {
    update: DeviceUpdate,
    line: usize,
    /// Number of the last peer's allowed IPs that a later `replace_allowed_ips` has revoked.
    revoked: usize,
}

/// An error in a `set` request. Never contains a value, which might be a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(super) struct ParseError {
    /// Number of the line; `set=1` is line 1.
    line: usize,
    reason: Reason,
}

/// Why one line was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    /// The line has no `=`.
    #[error("not of the form key=value")]
    NotKeyValue,
    /// The key is not valid before the first `public_key`.
    #[error("not a device key: {0}")]
    UnknownDeviceKey(String),
    /// The key is not valid after a `public_key`.
    #[error("not a peer key: {0}")]
    UnknownPeerKey(String),
    /// The key is known, but its value is invalid.
    #[error("{key} must be {expected}")]
    Value {
        key: &'static str,
        expected: &'static str,
    },
}

const KEY: &str = "64 hexadecimal digits";
const NUMBER_16: &str = "a number from 0 to 65535";
const NUMBER_32: &str = "a number from 0 to 4294967295";
const TRUE: &str = "true";
const ENDPOINT: &str = "IPv4:port or [IPv6]:port";
/// Length of the longest known key.
const LONGEST_SHOWN: usize = "persistent_keepalive_interval".len();
const ALLOWED_IP: &str = "address/prefix, or -address/prefix to remove it";

impl ParseError {
    /// The errno to answer with.
    pub(super) fn errno(&self) -> Errno {
        match self.reason {
            Reason::NotKeyValue => Errno::EPROTO,
            _ => Errno::EINVAL,
        }
    }
}

impl SetParser {
    /// Creates a parser that has seen the line `set=1`.
    pub(super) fn new() -> Self {
        Self {
            update: DeviceUpdate::default(),
            line: 1,
            revoked: 0,
        }
    }

    /// Parses the next line, without its line feed.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), ParseError> {
        self.line += 1;
        self.key_value(line).map_err(|reason| ParseError {
            line: self.line,
            reason,
        })
    }

    /// Returns the update once the blank line is reached.
    pub(super) fn finish(self) -> DeviceUpdate {
        self.update
    }

    fn key_value(&mut self, line: &[u8]) -> Result<(), Reason> {
        // Text that is not UTF-8 is neither a known key nor a valid value.
        let text = String::from_utf8_lossy(line);
        let (key, value) = text.split_once('=').ok_or(Reason::NotKeyValue)?;
        if key == "public_key" {
            let peer = PeerUpdate::new(PublicKey(*key_32("public_key", value)?));
            self.update.peers.push(peer);
            self.revoked = 0;
            return Ok(());
        }
        match self.update.peers.last_mut() {
            None => device_line(&mut self.update, key, value)?,
            Some(peer) => peer_line(peer, key, value)?,
        }
        if key == "replace_allowed_ips" {
            self.revoke_allowed_ips();
        }
        Ok(())
    }

    /// `replace_allowed_ips` also clears what the request has added so far: it may have taken that
    /// from another peer.
    fn revoke_allowed_ips(&mut self) {
        let Some(peer) = self.update.peers.last_mut() else {
            return;
        };
        let removals: Vec<_> = peer.allowed_ips[self.revoked..]
            .iter()
            .map(|change| AllowedIpUpdate {
                remove: true,
                ..*change
            })
            .collect();
        peer.allowed_ips.extend(removals);
        self.revoked = peer.allowed_ips.len();
    }
}

fn device_line(update: &mut DeviceUpdate, key: &str, value: &str) -> Result<(), Reason> {
    match key {
        "private_key" => {
            let key = key_32("private_key", value)?;
            update.private_key = Some(non_zero(&key).map(|key| PrivateKey(clamped(**key))));
        }
        "listen_port" => update.listen_port = Some(number_16("listen_port", value)?),
        "fwmark" => {
            update.fwmark = Some(decimal(value).ok_or(Reason::Value {
                key: "fwmark",
                expected: NUMBER_32,
            })?);
        }
        "replace_peers" => {
            must_be_true("replace_peers", value)?;
            update.replace_peers = true;
        }
        _ => return Err(Reason::UnknownDeviceKey(shown(key))),
    }
    Ok(())
}

fn peer_line(peer: &mut PeerUpdate, key: &str, value: &str) -> Result<(), Reason> {
    match key {
        "update_only" => {
            must_be_true("update_only", value)?;
            peer.update_only = true;
        }
        "remove" => {
            must_be_true("remove", value)?;
            peer.remove = true;
        }
        "preshared_key" => {
            let key = key_32("preshared_key", value)?;
            peer.preshared_key = Some(non_zero(&key).map(|key| PresharedKey(**key)));
        }
        "endpoint" => {
            peer.endpoint = Some(endpoint(value).ok_or(Reason::Value {
                key: "endpoint",
                expected: ENDPOINT,
            })?);
        }
        "persistent_keepalive_interval" => {
            let seconds = number_16("persistent_keepalive_interval", value)?;
            peer.persistent_keepalive = Some(seconds);
        }
        "replace_allowed_ips" => {
            must_be_true("replace_allowed_ips", value)?;
            peer.replace_allowed_ips = true;
        }
        "allowed_ip" => peer
            .allowed_ips
            .push(allowed_ip(value).ok_or(Reason::Value {
                key: "allowed_ip",
                expected: ALLOWED_IP,
            })?),
        "protocol_version" if value == "1" => {}
        "protocol_version" => {
            return Err(Reason::Value {
                key: "protocol_version",
                expected: "1",
            });
        }
        _ => return Err(Reason::UnknownPeerKey(shown(key))),
    }
    Ok(())
}

fn key_32(key: &'static str, value: &str) -> Result<Zeroizing<[u8; 32]>, Reason> {
    values::key(value).ok_or(Reason::Value { key, expected: KEY })
}

/// Returns the canonical form of a Curve25519 scalar (RFC 7748 §5), which `get` lists.
fn clamped(mut key: [u8; 32]) -> [u8; 32] {
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
    key
}

fn must_be_true(key: &'static str, value: &str) -> Result<(), Reason> {
    let expected = TRUE;
    (value == "true")
        .then_some(())
        .ok_or(Reason::Value { key, expected })
}

fn number_16(key: &'static str, value: &str) -> Result<u16, Reason> {
    let expected = NUMBER_16;
    decimal(value).ok_or(Reason::Value { key, expected })
}

/// Turns an IPv4-mapped address into an IPv4 one: the IPv6 socket carries IPv6 only.
fn endpoint(value: &str) -> Option<SocketAddr> {
    let address = values::endpoint(value)?;
    let ip = address.ip().to_canonical();
    Some(match address {
        SocketAddr::V6(v6) if ip.is_ipv6() => SocketAddr::V6(v6),
        _ => SocketAddr::new(ip, address.port()),
    })
}

fn allowed_ip(value: &str) -> Option<AllowedIpUpdate> {
    let removed = value.strip_prefix('-');
    let (address, prefix) = removed.unwrap_or(value).split_once('/')?;
    let is_padded = prefix.len() > 1 && prefix.starts_with('0');
    if is_padded {
        return None;
    }
    let network = Prefix::network_of(address.parse().ok()?, decimal(prefix)?)?;
    Some(AllowedIpUpdate {
        network,
        remove: removed.is_some(),
    })
}

/// Shows an unknown key only if it looks like one: it may be a secret whose key name is missing.
fn shown(key: &str) -> String {
    let is_name = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    match is_name && key.len() <= LONGEST_SHOWN {
        true => format!("{key:?}"),
        false => format!("{} bytes, not shown", key.len()),
    }
}

#[cfg(test)]
pub(super) mod fuzz;
#[cfg(test)]
mod tests;
