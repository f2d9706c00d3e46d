//! A peer with valid keys sends packets that no honest one would. None comes out of the tunnel, and
//! all are counted.
//!
//! ```text
//!        left                                        right
//!  packet socket ─▶ wg0 wireguard-go ══ tunnel ══ Convoy wg0 ─▶ packet socket
//! ```
//!
//! wireguard-go seals any packet with a valid version and length and a known destination.
//! `connlib/proto/tests/node/malice.rs` has the packets that it would not let pass.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use convoy_lab::{PacketSocket, eventually, measure::Counters, wireguard::KeyPair};

use crate::{
    scene::{DEADLINE, Pairing, Scene},
    stats::Stats,
    traffic::{ping, tcp_both_ways},
};

/// Begins every payload.
const MARK: &[u8] = b"of a malicious peer";
/// Bytes of the headers before it.
const IPV4: usize = 20;
const IPV6: usize = 40;
const WG: &str = "wg0";
/// An address that the right end assigns to another peer.
const THIRD: &str = "10.8.0.3";

#[test]
fn a_malicious_peers_packets_are_counted_and_do_not_come_out() {
    let Some(mut bed) = Malice::new() else { return };
    let (foreign, malformed) = ("inbound_foreign_source", "inbound_malformed");
    for (reason, packet) in [
        (foreign, v4("192.0.2.1")),
        (foreign, v4(THIRD)),
        (foreign, v4("10.8.0.2")),
        (foreign, v4("127.0.0.1")),
        (foreign, v4("0.0.0.0")),
        (foreign, v4("255.255.255.255")),
        (foreign, v6("2001:db8::1")),
        (foreign, v6("fd08::2")),
        (foreign, v6("::1")),
        (foreign, v6("::ffff:10.8.0.1")),
        // Header lengths: shorter than an IPv4 header, and longer than the packet.
        (malformed, changed(v4("10.8.0.1"), 0, &[0x40])),
        (malformed, changed(v4("10.8.0.1"), 0, &[0x44])),
        (malformed, changed(v4("10.8.0.1"), 0, &[0x4f])),
        // Total lengths: zero, shorter than the header, longer than the packet.
        (malformed, changed(v4("10.8.0.1"), 2, &[0, 0])),
        (malformed, changed(v4("10.8.0.1"), 2, &[0, 19])),
        (malformed, changed(v4("10.8.0.1"), 2, &[0, 49])),
        (malformed, changed(v4("10.8.0.1"), 2, &[0xff, 0xff])),
        // IPv6 payload lengths: longer than the packet.
        (malformed, changed(v6("fd08::1"), 4, &[0, 25])),
        (malformed, changed(v6("fd08::1"), 4, &[0xff, 0xff])),
    ] {
        bed.is_dropped(packet, reason);
    }
    let bed = bed.honest_packets_pass();
    let came_out = bed.marked_packets();
    assert!(came_out.is_empty(), "{came_out:x?}");
}

#[test]
fn a_packet_longer_than_its_header_says_is_truncated() {
    let Some(bed) = Malice::new() else { return };
    let (short_v4, short_v6) = (
        changed(v4("10.8.0.1"), 2, &[0, 41]),
        changed(v6("fd08::1"), 4, &[0, 20]),
    );
    for packet in [&short_v4, &short_v6] {
        bed.inject(packet);
    }
    let mut bed = bed.honest_packets_pass();
    assert_eq!(bed.marked_packets(), [&short_v4[..41], &short_v6[..60]]);
    assert_eq!(bed.new_drops(), BTreeMap::new());
}

/// A tunnel from wireguard-go to Convoy, and packet sockets below both IP stacks.
struct Malice {
    scene: Scene,
    wire: PacketSocket,
    tap: PacketSocket,
    counted: Counters,
}

impl Malice {
    fn new() -> Option<Self> {
        let scene = Scene::new(Pairing::WireguardGoToConvoy)?;
        let third = KeyPair::generate().public;
        let key: String = third.iter().map(|byte| format!("{byte:02x}")).collect();
        let request = format!("set=1\npublic_key={key}\nallowed_ip={THIRD}/32\n\n");
        let answer = scene.right.daemon.request(&request).unwrap();
        assert_eq!(answer, "errno=0\n\n");
        ping(&scene.left, scene.right.inner_v4());
        let mut malice = Self {
            wire: PacketSocket::sending(&scene.left.namespace, WG).unwrap(),
            tap: PacketSocket::hearing(&scene.right.namespace, WG).unwrap(),
            counted: Counters::default(),
            scene,
        };
        malice.new_drops();
        Some(malice)
    }

    /// Injects a packet into the left end as if its host had sent it.
    fn inject(&self, packet: &[u8]) {
        self.wire.send(packet).unwrap();
    }

    /// Injects `packet` and waits until it is counted once, under `reason` and no other.
    fn is_dropped(&mut self, packet: Vec<u8>, reason: &str) {
        self.inject(&packet);
        let drops = eventually(DEADLINE, || {
            let drops = self.new_drops();
            (!drops.is_empty()).then_some(drops)
        });
        let expected = BTreeMap::from([(reason.to_owned(), 1)]);
        assert_eq!(drops, Some(expected), "{packet:x?}");
    }

    /// Packets that the right end has received and dropped since the last call, by reason.
    fn new_drops(&mut self) -> BTreeMap<String, u64> {
        let now = Stats::of(&self.scene.right).clone();
        let new = now.since(&std::mem::replace(&mut self.counted, now.clone()));
        let drops = new.inbound_drops();
        drops.map(|(reason, n)| (reason.to_owned(), n)).collect()
    }

    fn honest_packets_pass(self) -> Self {
        let (left, right) = (&self.scene.left, &self.scene.right);
        ping(left, right.inner_v6());
        tcp_both_ways(&left.namespace, right, right.inner_v4(), 1_000_000);
        self
    }

    /// Malicious packets that came out of the right end's TUN.
    fn marked_packets(&self) -> Vec<Vec<u8>> {
        let mut marked = Vec::new();
        let mut heard = 0;
        while let Some(frame) = self.tap.receive(Duration::ZERO).unwrap() {
            heard += 1;
            // In an ICMP error, the packet follows two headers.
            let payloads = [IPV4, IPV6].map(|header| frame.get(header..));
            if payloads.iter().flatten().any(|p| p.starts_with(MARK)) {
                marked.push(frame);
            }
        }
        assert!(heard > 0, "not even the honest packets were captured");
        marked
    }
}

/// An IPv4 packet of 48 bytes from `source` to the right end.
fn v4(source: &str) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 48, 0, 0, 0, 0, 64, 253, 0, 0];
    for address in [source, "10.8.0.2"] {
        let IpAddr::V4(address) = address.parse().unwrap() else {
            panic!("not an IPv4 address");
        };
        packet.extend(address.octets());
    }
    marked(packet, 48)
}

/// An IPv6 packet of 64 bytes from `source` to the right end.
fn v6(source: &str) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, 253, 64];
    for address in [source, "fd08::2"] {
        let IpAddr::V6(address) = address.parse().unwrap() else {
            panic!("not an IPv6 address");
        };
        packet.extend(address.octets());
    }
    marked(packet, 64)
}

fn marked(mut packet: Vec<u8>, len: usize) -> Vec<u8> {
    packet.extend(MARK);
    packet.resize(len, b'.');
    packet
}

fn changed(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}
