//! A malicious peer: valid keys, and plaintexts that no honest peer sends.

use std::net::IpAddr;

use crate::common::*;
use convoy_proto::{PaddablePacket, counters::DropReason};

#[test]
fn plaintexts_that_are_no_ip_packets_are_dropped_and_counted() {
    let (v4, v6) = (honest_v4(), honest_v6());
    let with = |packet: &[u8], at: usize, bytes: &[u8]| {
        let mut packet = packet.to_vec();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        packet
    };
    let cases = [
        ("one byte", vec![0x45]),
        (
            "IPv4 without the last byte of its header",
            v4[..19].to_vec(),
        ),
        (
            "IPv6 without the last byte of its header",
            v6[..39].to_vec(),
        ),
        ("zeros", vec![0; 64]),
        ("version 5", with(&v4, 0, &[0x55])),
        ("version 15", with(&v4, 0, &[0xf5])),
        ("an IPv4 header of 16 bytes", with(&v4, 0, &[0x44])),
        ("an IPv4 header of zero bytes", with(&v4, 0, &[0x40])),
        (
            "an IPv4 header longer than the packet",
            with(&v4, 0, &[0x4f]),
        ),
        ("IPv4 of length zero", with(&v4, 2, &[0, 0])),
        ("IPv4 shorter than its header", with(&v4, 2, &[0, 19])),
        ("IPv4 longer than the plaintext", with(&v4, 2, &[0, 49])),
        ("IPv4 of the greatest length", with(&v4, 2, &[0xff, 0xff])),
        ("IPv6 longer than the plaintext", with(&v6, 4, &[0, 9])),
        ("IPv6 of the greatest length", with(&v6, 4, &[0xff, 0xff])),
    ];
    for (case, plaintext) in cases {
        assert_eq!(
            outcome_of(plaintext),
            Err(DropReason::InboundMalformed),
            "{case}"
        );
    }
}

#[test]
fn a_packet_ends_where_its_header_says_and_nothing_beyond_is_delivered() {
    let mut v4 = honest_v4();
    v4[3] = 30;
    assert_eq!(outcome_of(v4.clone()), Ok(Some(v4[..30].to_vec())));
    let mut v6 = honest_v6();
    v6[5] = 3;
    assert_eq!(outcome_of(v6.clone()), Ok(Some(v6[..43].to_vec())));
}

#[test]
fn a_packet_from_an_address_that_is_not_the_peers_is_dropped() {
    let addresses = [
        "192.0.2.1",
        "10.0.0.2",
        "0.0.0.0",
        "255.255.255.255",
        "127.0.0.1",
    ];
    for foreign in addresses {
        let packet = ipv4(address(foreign), [10, 0, 0, 2].into(), &[7; 28]);
        let expected = Err(DropReason::InboundForeignSource);
        assert_eq!(outcome_of(packet), expected, "{foreign}");
    }
    for foreign in [
        "2001:db8::1",
        "::",
        "::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
    ] {
        let mut packet = honest_v6();
        packet[8..24].copy_from_slice(&octets(foreign));
        let expected = Err(DropReason::InboundForeignSource);
        assert_eq!(outcome_of(packet), expected, "{foreign}");
    }
}

#[test]
fn an_empty_plaintext_is_a_keepalive_and_nothing_else() {
    assert_eq!(outcome_of(Vec::new()), Ok(None));
}

/// Lets `a` encrypt this plaintext, and returns what `b` delivers; checks that honest packets still
/// pass afterwards.
fn outcome_of(plaintext: Vec<u8>) -> Result<Option<Vec<u8>>, DropReason> {
    let mut pair = Pair::new();
    let mut to_a = pair.a.as_peer();
    to_a.allowed_ips.push(allow(address(V6_OF_A), 128));
    pair.b.set_peer(to_a, pair.now);
    pair.a_sends(b"hello");
    pair.settle();
    pair.b.delivered.clear();
    let before = drops(&mut pair.b);
    let mut liar = Liar {
        claimed: ipv4(pair.a.inner, pair.b.inner, &[]),
        plaintext,
    };
    pair.a.send_from(&mut liar, pair.now);
    pair.settle();
    let after = drops(&mut pair.b);
    let mut dropped = DropReason::ALL.iter().zip(after.iter().zip(&before));
    let dropped = dropped.find_map(|(reason, (after, before))| (after > before).then_some(*reason));
    let delivered = pair.b.delivered.pop();

    pair.a_sends(b"honest");
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 1);
    assert_eq!(payload(&pair.b.delivered[0]), b"honest");
    match dropped {
        Some(reason) => {
            assert_eq!(delivered, None);
            Err(reason)
        }
        None => Ok(delivered),
    }
}

fn drops(host: &mut Host) -> Vec<u64> {
    let counts = DropReason::ALL.iter().map(|&reason| host.drops(reason));
    counts.collect()
}

const V6_OF_A: &str = "fd00::1";

/// 48 bytes: needs no padding.
fn honest_v4() -> Vec<u8> {
    ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), &[7; 28])
}

fn honest_v6() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 59, 64];
    packet.extend(octets(V6_OF_A));
    packet.extend(octets("fd00::2"));
    packet.extend([7; 8]);
    packet
}

fn octets(address_of_ipv6: &str) -> [u8; 16] {
    match address(address_of_ipv6) {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => panic!("the address must be IPv6"),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A packet that turns into another one when it is encrypted.
struct Liar {
    claimed: Vec<u8>,
    plaintext: Vec<u8>,
}

impl PaddablePacket for Liar {
    fn bytes(&self) -> &[u8] {
        &self.claimed
    }

    fn padded(&mut self, _: usize) -> &[u8] {
        &self.plaintext
    }
}
