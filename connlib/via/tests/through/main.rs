//! A client whose tunnel to a second hop goes through its tunnel to a first hop, all in memory.

#[path = "../../../proto/tests/common/mod.rs"]
mod common;
mod drops;
mod fragments;
mod loops;
mod narrow;
mod world;

use std::time::Duration;

use convoy_proto::counters::DropReason;

use common::{Burst, SECOND, TestPacket};
use world::{World, udp};

#[test]
fn packets_pass_through_both_tunnels_both_ways() {
    for is_ipv4 in [true, false] {
        let mut world = World::new(is_ipv4);
        world.client_sends(b"there");
        world.settle();
        world.second_sends(b"and back");
        world.settle();
        assert_eq!(
            world.arrived(),
            (vec![b"there".to_vec()], vec![b"and back".to_vec()])
        );
        assert!(world.sent_to_first >= 3, "two handshakes and a packet");
    }
}

#[test]
fn every_datagram_on_the_uplink_is_of_the_first_hop() {
    let mut world = World::new(true);
    for n in 0..40 {
        world.client_sends(&[n; 500]);
        world.pass(Duration::from_secs(7));
    }
    // The sink of the world panics at any other destination.
    assert_eq!(world.arrived().0.len(), 40);
}

#[test]
fn a_train_stays_a_train() {
    let mut world = World::connected(true);
    let payloads: Vec<_> = (0..50).map(|n| vec![n; 1000]).collect();
    world.client_sends_all(&payloads);
    let lengths: Vec<_> = world.wire.iter().map(Vec::len).collect();
    assert_eq!(lengths, vec![lengths[0]; 50]);
    world.settle();
    assert_eq!(world.arrived().0, payloads);
}

#[test]
fn a_full_queue_delays_packets_and_keeps_their_order() {
    for room in 1..=4 {
        let mut world = World::connected(true);
        let payloads: Vec<_> = (0..100).map(|n| vec![n; 40 + usize::from(n)]).collect();
        let mut packets = world.packets(&payloads);
        for _ in 0..100 {
            world.room = room;
            world.send_packets(&mut packets);
            assert!(world.wire.len() <= room);
            world.room = usize::MAX;
            world.carry();
        }
        world.settle();
        assert_eq!(world.arrived().0, payloads, "{room}");
    }
}

#[test]
fn a_full_writer_delays_packets_and_keeps_their_order() {
    let mut world = World::connected(true);
    let payloads: Vec<_> = (0..50).map(|n| vec![n; 100]).collect();
    for payload in &payloads {
        world.second_sends(payload);
    }
    world.client.slots = 7;
    world.carry();
    assert_eq!(world.client.delivered.len(), 7);
    assert!(!world.hop.is_drained());
    world.client.slots = usize::MAX;
    world.settle();
    assert_eq!(world.arrived().1, payloads);
}

#[test]
fn both_tunnels_renew_their_sessions() {
    let mut world = World::connected(true);
    for n in 0..90 {
        world.client_sends(&[n]);
        world.second_sends(&[n]);
        world.pass(10 * SECOND);
    }
    let expected: Vec<_> = (0..90).map(|n| vec![n]).collect();
    assert_eq!(world.arrived(), (expected.clone(), expected));
    let handshakes = |node: &mut convoy_proto::Node| node.counters().handshakes;
    assert!(handshakes(world.hop.node()) >= 7);
    assert!(handshakes(&mut world.client.node) >= 7);
}

#[test]
fn either_hop_may_move() {
    let mut world = World::connected(true);
    world.first_address = ([198, 51, 100, 7], 4000).into();
    world.second_sends(b"from elsewhere");
    world.settle();
    world.client_sends(b"there");
    world.settle();
    world.second_address = ([198, 51, 100, 8], 5000).into();
    world.second_sends(b"from a third place");
    world.settle();
    world.client_sends(b"and there");
    world.settle();
    let (there, back) = world.arrived();
    assert_eq!(there, [b"there".to_vec(), b"and there".to_vec()]);
    assert_eq!(
        back,
        [b"from elsewhere".to_vec(), b"from a third place".to_vec()]
    );
}

#[test]
fn nothing_leaves_before_the_hop_has_an_address() {
    let mut world = World::new(true);
    world.hop.place(&[], 0);
    world.client_sends(b"in the clear?");
    world.pass(20 * SECOND);
    assert_eq!(world.sent_to_first, 0);
    assert!(world.hop_drops(DropReason::OutboundViaNoAddress) > 1);
    world.place();
    world.pass(20 * SECOND);
    assert_eq!(world.arrived().0, [b"in the clear?".to_vec()]);
}

#[test]
fn a_link_that_goes_down_drops_what_is_on_its_way() {
    let mut world = World::connected(true);
    world.second_sends(b"late");
    world.client.slots = 0;
    world.carry();
    assert!(!world.hop.is_drained());
    let now = world.now;
    world.client.node.set_link(false, now);
    world.hop.set_link(false, now);
    assert!(world.hop.is_drained());
    assert_eq!(world.hop_drops(DropReason::InboundLinkDown), 1);
    world.client.slots = usize::MAX;
    world.client.node.set_link(true, now);
    world.hop.set_link(true, now);
    world.client_sends(b"again");
    world.pass(10 * SECOND);
    assert_eq!(world.arrived().0, [b"again".to_vec()]);
}

#[test]
fn checksums_and_headers_are_right() {
    use convoy_packet::{datagram, packet::Packet, vnet::VnetHeader};
    for is_ipv4 in [true, false] {
        let mut world = World::connected(is_ipv4);
        let payloads: Vec<_> = (0..200).map(|n| vec![n; usize::from(n) * 5]).collect();
        world.client_sends_all(&payloads);
        world.deliver_to_first();
        for bytes in &world.first.delivered {
            let packet = Packet::parse(VnetHeader::default(), bytes).unwrap();
            let datagram = datagram::parse(&packet).unwrap();
            assert_eq!(datagram.to, world.second_address);
            assert_eq!(datagram.from.port(), world.hop.port());
            if is_ipv4 {
                assert_eq!(bytes[6], 0x40, "fragmentation is forbidden");
            }
        }
        assert_eq!(world.first.delivered.len(), 200);
    }
}

#[test]
fn congestion_is_told_across_both_tunnels() {
    let mut world = World::connected(true);
    let mut packet = udp(world.second.inner, 9, world.client.inner, 9, b"capable");
    packet[1] = 0b10;
    convoy_packet::packet::seal_ipv4(&mut packet);
    let now = world.now;
    world.second.send(&packet, now);
    world.mark = 0b11;
    world.settle();
    assert_eq!(world.client.delivered[0][1] & 0b11, 0b11);
}

#[test]
fn congestion_on_the_way_to_the_first_hop_is_told_as_well() {
    for (capable, expected) in [(0b10, 0b11), (0b01, 0b11), (0, 0)] {
        let mut world = World::connected(true);
        let mut packet = udp(world.second.inner, 9, world.client.inner, 9, b"capable");
        packet[1] = capable;
        convoy_packet::packet::seal_ipv4(&mut packet);
        let now = world.now;
        world.second.send(&packet, now);
        // The second hop's host copies the mark to the datagram (RFC 6040).
        world.mark = capable;
        world.mark_of_first = 0b11;
        world.settle();
        assert_eq!(world.client.delivered[0][1] & 0b11, expected);
    }
}

#[test]
fn packets_mark_their_datagrams_of_both_tunnels() {
    let mut world = World::connected(true);
    let mut packet = udp(world.client.inner, 9, world.second.inner, 9, b"capable");
    packet[1] = 0b10;
    convoy_packet::packet::seal_ipv4(&mut packet);
    let packet = TestPacket::new(&packet);
    world.send_packets(&mut Burst([packet].into()));
    assert_eq!(world.marks, [0b10]);
    world.deliver_to_first();
    let wrapped = world.first.delivered.pop().expect("a packet");
    assert_eq!(wrapped[1] & 0b11, 0b10);
}

#[test]
fn a_first_hop_that_is_silent_for_an_hour_costs_a_bounded_memory_and_is_reached_again() {
    let mut world = World::connected(true);
    world.is_first_silent = true;
    for n in 0..360 {
        world.client_sends(&[n as u8; 1000]);
        world.pass(10 * SECOND);
    }
    assert!(world.arrived().0.is_empty());
    let sent = world.sent_to_first;
    assert!(sent < 1_000, "it calls every five seconds: {sent}");
    world.is_first_silent = false;
    world.pass(20 * SECOND);
    world.client_sends(b"again");
    world.pass(20 * SECOND);
    let (there, _) = world.arrived();
    assert_eq!(there.last().expect("packets"), b"again");
    assert!(there.len() <= 129, "those held: {}", there.len());
}

#[test]
fn an_outer_tunnel_of_one_family_carries_that_one_alone() {
    for (is_ipv4, own) in [(true, "10.9.0.1"), (false, "fd00:9::1")] {
        for goes in [true, false] {
            let mut world = World::new(is_ipv4 == goes);
            world.hop.place(&[own.parse().expect("an address")], 50_000);
            world.client_sends(b"there");
            world.settle();
            assert_eq!(world.arrived().0.len(), usize::from(goes));
            let dropped = world.hop_drops(DropReason::OutboundViaNoAddress);
            assert_eq!(dropped > 0, !goes);
        }
    }
}
