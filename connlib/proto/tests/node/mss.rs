//! Carries TCP handshakes through two nodes, of which one lowers the MSS that they announce.

use std::net::IpAddr;

use crate::common::*;
use convoy_proto::config::PeerUpdate;
use etherparse::{
    PacketBuilder,
    TcpOptionElement::{MaximumSegmentSize, WindowScale},
};

/// The MSS of a host with Ethernet's MTU, over IPv4.
const ETHERNET: u16 = 1460;

#[test]
fn a_handshake_is_clamped_on_its_way_out_and_on_its_way_in() {
    for clamps_outbound in [true, false] {
        for (is_v4, most) in [(true, 1380), (false, 1360)] {
            let mut pair = Pair::connected();
            add_v6(&mut pair);
            match clamps_outbound {
                true => clamp(&mut pair.a, 1420),
                false => clamp(&mut pair.b, 1420),
            }
            for is_answer in [false, true] {
                pair.a.send(&syn(is_v4, is_answer, ETHERNET, &[]), pair.now);
            }
            pair.settle();
            let expected = [false, true].map(|is_answer| syn(is_v4, is_answer, most, &[]));
            assert_eq!(pair.b.delivered, expected);
        }
    }
}

#[test]
fn other_packets_pass_unchanged_beside_a_handshake() {
    let mut pair = Pair::connected();
    clamp(&mut pair.a, 1420);
    clamp(&mut pair.b, 1420);
    let burst = |mss| {
        let (mut data, flags) = (syn(true, true, ETHERNET, &[7; 900]), 20 + 13);
        data[flags] = 0x10;
        vec![data.clone(), syn(true, false, mss, &[]), data]
    };
    pair.a.send_all(&burst(ETHERNET), pair.now);
    pair.settle();
    assert!(pair.b.delivered == burst(1380));
}

#[test]
fn a_handshake_that_waits_for_a_session_is_clamped() {
    let mut pair = Pair::new();
    clamp(&mut pair.a, 1420);
    pair.a.send(&syn(true, false, ETHERNET, &[]), pair.now);
    pair.settle();
    assert_eq!(pair.b.delivered, [syn(true, false, 1380, &[])]);
}

#[test]
fn a_jumbo_packet_that_opens_a_connection_is_clamped() {
    for clamps_outbound in [true, false] {
        let mut pair = Pair::connected();
        match clamps_outbound {
            true => clamp(&mut pair.a, 8920),
            false => clamp(&mut pair.b, 8920),
        }
        pair.a
            .send(&syn(true, false, 65_000, &[7; 5_000]), pair.now);
        pair.a.send(&ipv4_of(3_000, &pair), pair.now);
        pair.settle();
        let expected = [syn(true, false, 8880, &[7; 5_000]), ipv4_of(3_000, &pair)];
        assert!(pair.b.delivered == expected);
    }
}

#[test]
fn the_size_follows_a_change_of_the_mtu() {
    let mut pair = Pair::connected();
    for mtu in [1420, 1280, 1500] {
        clamp(&mut pair.a, mtu);
        pair.a.send(&syn(true, false, ETHERNET, &[]), pair.now);
    }
    pair.settle();
    let expected = [1380, 1240, 1460].map(|mss| syn(true, false, mss, &[]));
    assert_eq!(pair.b.delivered, expected);
}

#[test]
fn nothing_is_clamped_by_default_nor_while_the_mtu_is_unknown() {
    let mut pair = Pair::connected();
    pair.a.node.set_mtu(1420);
    pair.b.node.set_clamp_mss(true);
    assert_eq!(
        [&pair.a, &pair.b].map(|host| host.node.clamps_mss()),
        [false, true]
    );
    pair.a.send(&syn(true, false, ETHERNET, &[]), pair.now);
    pair.settle();
    pair.b.node.set_mtu(0);
    pair.a.send(&syn(true, false, ETHERNET, &[]), pair.now);
    pair.settle();
    assert_eq!(
        pair.b.delivered,
        [(); 2].map(|()| syn(true, false, ETHERNET, &[]))
    );
}

fn clamp(host: &mut Host, mtu: u16) {
    host.node.set_mtu(mtu);
    host.node.set_clamp_mss(true);
}

/// Gives both hosts an IPv6 address.
fn add_v6(pair: &mut Pair) {
    let (mut to_a, mut to_b) = (pair.a.as_peer(), pair.b.as_peer());
    for (peer, number) in [(&mut to_a, 1), (&mut to_b, 2)] {
        *peer = PeerUpdate {
            allowed_ips: vec![allow(v6(number).into(), 128)],
            ..peer.clone()
        };
    }
    pair.a.set_peer(to_b, pair.now);
    pair.b.set_peer(to_a, pair.now);
}

/// From the first host to the second.
fn syn(is_v4: bool, is_answer: bool, mss: u16, payload: &[u8]) -> Vec<u8> {
    let network = match is_v4 {
        true => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        false => PacketBuilder::ipv6(v6(1), v6(2), 64),
    };
    let mut tcp = network.tcp(4242, 5201, 7, 65_000).syn();
    if is_answer {
        tcp = tcp.ack(8);
    }
    let mut packet = Vec::new();
    tcp.options(&[MaximumSegmentSize(mss), WindowScale(7)])
        .expect("a few options")
        .write(&mut packet, payload)
        .expect("a packet");
    packet
}

fn v6(number: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, number);
    address
}

fn ipv4_of(len: usize, pair: &Pair) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (pair.a.inner, pair.b.inner);
    ipv4(from, to, &vec![9; len - 20])
}
