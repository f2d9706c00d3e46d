//! Writes the answer to `get=1` from a [`Snapshot`], in wireguard-go's order.

use std::{
    fmt::{self, Write},
    net::SocketAddr,
    time::{Duration, UNIX_EPOCH},
};

use convoy_proto::config::{PeerSnapshot, Snapshot};
use zeroize::Zeroizing;

use crate::values::key_line;

/// Returns the lines of the listing, without the final `errno=0`.
///
/// The text holds keys: it is wiped when dropped, and never moves to a larger buffer.
pub(super) fn listing(snapshot: &Snapshot) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(length_bound(snapshot)));
    // INVARIANT: writing to a String does not fail.
    device(&mut text, snapshot).expect("a String accepts any write");
    text
}

/// Upper bound of the listing's length in bytes.
fn length_bound(snapshot: &Snapshot) -> usize {
    const DEVICE: usize = 160;
    const PEER: usize = 512;
    const ALLOWED_IP: usize = 64;
    let allowed_ips: usize = snapshot.peers.iter().map(|p| p.allowed_ips.len()).sum();
    DEVICE + PEER * snapshot.peers.len() + ALLOWED_IP * allowed_ips
}

fn device(text: &mut String, snapshot: &Snapshot) -> fmt::Result {
    if let Some(key) = &snapshot.private_key {
        key_line(text, "private_key", Some(&key.0))?;
    }
    if snapshot.listen_port != 0 {
        writeln!(text, "listen_port={}", snapshot.listen_port)?;
    }
    if snapshot.fwmark != 0 {
        writeln!(text, "fwmark={}", snapshot.fwmark)?;
    }
    snapshot.peers.iter().try_for_each(|p| peer(text, p))
}

fn peer(text: &mut String, peer: &PeerSnapshot) -> fmt::Result {
    let preshared_key = peer.preshared_key.as_ref().map(|key| &key.0);
    let last_handshake = peer
        .last_handshake
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .unwrap_or(Duration::ZERO);

    key_line(text, "public_key", Some(&peer.public_key.0))?;
    key_line(text, "preshared_key", preshared_key)?;
    text.push_str("protocol_version=1\n");
    if let Some(endpoint) = peer.endpoint {
        endpoint_line(text, endpoint)?;
    }
    writeln!(text, "last_handshake_time_sec={}", last_handshake.as_secs())?;
    let nanoseconds = last_handshake.subsec_nanos();
    writeln!(text, "last_handshake_time_nsec={nanoseconds}")?;
    writeln!(text, "tx_bytes={}", peer.tx_bytes)?;
    writeln!(text, "rx_bytes={}", peer.rx_bytes)?;
    let keepalive = peer.persistent_keepalive.as_secs();
    writeln!(text, "persistent_keepalive_interval={keepalive}")?;
    for network in &peer.allowed_ips {
        writeln!(text, "allowed_ip={network}")?;
    }
    Ok(())
}

/// Shows a zone by name, as the reference does, or by number if no interface has it any more.
fn endpoint_line(text: &mut String, endpoint: SocketAddr) -> fmt::Result {
    if let SocketAddr::V6(v6) = endpoint
        && v6.scope_id() != 0
        && let Ok(zone) = nix::net::if_::if_indextoname(v6.scope_id())
        && let Ok(zone) = zone.to_str()
        // nix returns an empty name for an unknown index.
        && !zone.is_empty()
    {
        return writeln!(text, "endpoint=[{}%{zone}]:{}", v6.ip(), v6.port());
    }
    writeln!(text, "endpoint={endpoint}")
}

#[cfg(test)]
mod tests {
    use convoy_proto::config::{Prefix, PresharedKey, PrivateKey, PublicKey};

    use super::*;

    #[test]
    fn an_empty_device_lists_nothing() {
        assert_eq!(*listing(&Snapshot::default()), "");
    }

    #[test]
    fn a_listing_has_the_references_lines_in_its_order() {
        let snapshot = Snapshot {
            private_key: Some(PrivateKey([0xe8; 32])),
            listen_port: 12912,
            fwmark: 51820,
            peers: vec![full_peer(), quiet_peer()],
            ..Snapshot::default()
        };
        let digits = |byte: &str| byte.repeat(32);
        let expected = [
            format!("private_key={}\n", digits("e8")),
            "listen_port=12912\nfwmark=51820\n".to_owned(),
            format!("public_key={}\n", digits("b8")),
            format!("preshared_key={}\nprotocol_version=1\n", digits("18")),
            "endpoint=[abcd:23::33]:51820\n\
             last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=5\n\
             tx_bytes=38333\nrx_bytes=2224\npersistent_keepalive_interval=111\n\
             allowed_ip=192.168.4.4/32\nallowed_ip=fd00::/64\n"
                .to_owned(),
            format!("public_key={}\n", digits("58")),
            format!("preshared_key={}\nprotocol_version=1\n", digits("00")),
            "last_handshake_time_sec=0\nlast_handshake_time_nsec=0\n\
             tx_bytes=0\nrx_bytes=0\npersistent_keepalive_interval=0\n"
                .to_owned(),
        ]
        .concat();
        assert_eq!(*listing(&snapshot), expected);
    }

    #[test]
    fn a_zone_is_shown_by_name() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        for (zone, expected) in [
            (index, "endpoint=[fe80::1%lo]:7\n"),
            (4_000_000_000, "endpoint=[fe80::1%4000000000]:7\n"),
            (0, "endpoint=[fe80::1]:7\n"),
        ] {
            let mut text = String::new();
            let endpoint = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, zone);
            endpoint_line(&mut text, endpoint.into()).unwrap();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn no_listing_outgrows_its_buffer() {
        let widest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let peer = PeerSnapshot {
            endpoint: Some(std::net::SocketAddrV6::new(widest, u16::MAX, 0, u32::MAX).into()),
            tx_bytes: u64::MAX,
            rx_bytes: u64::MAX,
            allowed_ips: vec![Prefix::host(widest.into()); 3],
            ..full_peer()
        };
        let snapshot = Snapshot {
            private_key: Some(PrivateKey([1; 32])),
            listen_port: u16::MAX,
            fwmark: u32::MAX,
            peers: vec![peer],
            ..Snapshot::default()
        };
        assert!(listing(&snapshot).len() <= length_bound(&snapshot));
    }

    fn full_peer() -> PeerSnapshot {
        PeerSnapshot {
            preshared_key: Some(PresharedKey([0x18; 32])),
            endpoint: Some("[abcd:23::33]:51820".parse().unwrap()),
            last_handshake: Some(UNIX_EPOCH + Duration::new(1_700_000_000, 5)),
            persistent_keepalive: Duration::from_secs(111),
            rx_bytes: 2224,
            tx_bytes: 38333,
            allowed_ips: ["192.168.4.4/32", "fd00::/64"].map(network).to_vec(),
            ..PeerSnapshot::new(PublicKey([0xb8; 32]))
        }
    }

    fn quiet_peer() -> PeerSnapshot {
        PeerSnapshot::new(PublicKey([0x58; 32]))
    }

    fn network(text: &str) -> Prefix {
        text.parse().unwrap()
    }
}
