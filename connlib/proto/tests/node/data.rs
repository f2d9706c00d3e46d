//! Carries packets through two nodes.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use crate::common::*;
use convoy_proto::{Arrival, SinkFull, Staging, config::PeerUpdate, counters::DropReason};

#[test]
fn the_first_packets_wait_for_the_handshake_and_then_arrive_in_order() {
    let mut pair = Pair::new();
    for n in 0..10 {
        pair.a_sends(&[n]);
    }
    pair.settle();
    pair.a_sends(&[10]);
    pair.settle();
    let seen: Vec<u8> = pair.b.delivered.iter().map(|p| payload(p)[0]).collect();
    assert_eq!(seen, (0..=10).collect::<Vec<_>>());
}

#[test]
fn packets_travel_both_ways_and_are_counted_on_both_sides() {
    let mut pair = Pair::connected();
    for _ in 0..5 {
        pair.a_sends(&[1; 100]);
        pair.b_sends(&[2; 200]);
    }
    pair.settle();
    assert_eq!((pair.a.delivered.len(), pair.b.delivered.len()), (5, 5));
    let (a, b) = (pair.a.snapshot(pair.now), pair.b.snapshot(pair.now));
    assert_eq!(a.peers[0].tx_packets, 6);
    assert_eq!(b.peers[0].rx_packets, 6);
    assert_eq!(a.peers[0].tx_bytes, b.peers[0].rx_bytes);
    assert_eq!(b.peers[0].tx_bytes, a.peers[0].rx_bytes);
    assert_eq!(a.counters.outbound_packets, 6);
}

#[test]
fn a_datagram_is_padded_to_sixteen_bytes_and_the_packet_trimmed_again() {
    let mut pair = Pair::connected();
    pair.a_sends(&[7; 33]);
    let wire = pair.a.take_wire(pair.now);
    assert_eq!(wire[0].len(), 64 + 32, "53 bytes padded to 64");
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(payload(&pair.b.delivered[0]), [7; 33]);
}

#[test]
fn the_largest_packets_pass() {
    let mut pair = Pair::connected();
    pair.a.node.set_mtu(65_455);
    pair.a_sends(&vec![9; 65_455 - 20]);
    pair.settle();
    assert_eq!(pair.b.delivered[0].len(), 65_455);
}

#[test]
fn a_datagram_that_is_led_back_into_the_interface_ends_there_and_those_of_others_pass() {
    let mut pair = Pair::new();
    let endpoint = pair.b.address;
    let wrapped = |from: IpAddr, message: &[u8]| {
        let length = (8 + message.len()) as u16;
        let header = [
            [0xca, 0x6c],
            endpoint.port().to_be_bytes(),
            length.to_be_bytes(),
            [0; 2],
        ];
        let mut packet = ipv4(from, endpoint.ip(), &[&header.concat(), message].concat());
        packet[9] = 17;
        packet
    };
    let everything = PeerUpdate {
        update_only: true,
        allowed_ips: vec![allow([0, 0, 0, 0].into(), 0)],
        ..pair.b.as_peer()
    };
    pair.a.set_peer(everything, pair.now);
    // An initiation, and data.
    pair.a_sends(b"first");
    let initiation = pair.a.take_wire(pair.now);
    pair.b.receive(&initiation[0], pair.a.address, pair.now);
    pair.settle();
    pair.a_sends(b"second");
    let data = pair.a.take_wire(pair.now);
    let own = [&initiation[0], &data[0]];
    for (dropped, message) in own.into_iter().enumerate() {
        assert_eq!(pair.a.drops(DropReason::OutboundLoop), dropped as u64);
        let packet = wrapped(pair.a.inner, message);
        pair.a.send(&packet, pair.now);
        assert_eq!(pair.a.take_wire(pair.now).len(), 0);
    }
    assert_eq!(pair.a.drops(DropReason::OutboundLoop), 2);
    // Another host's tunnel to the same server, other datagrams, and nonsense.
    let mut of_others = data[0].clone();
    of_others[4] ^= 1;
    for message in [
        &of_others[..],
        b"",
        b"\x04\0\0",
        &[4, 0, 0, 0],
        b"anything else",
    ] {
        let packet = wrapped(pair.a.inner, message);
        pair.a.send(&packet, pair.now);
        assert_eq!(pair.a.take_wire(pair.now).len(), 1, "{message:?}");
    }
    assert_eq!(pair.a.drops(DropReason::OutboundLoop), 2);
}

/// The kernel cuts a datagram that is too long for the interface.
#[test]
fn the_first_fragment_of_a_datagram_that_is_led_back_into_the_interface_ends_there() {
    let mut pair = Pair::connected();
    let endpoint = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let everything = PeerUpdate {
        update_only: true,
        endpoint: Some((endpoint, 51820).into()),
        allowed_ips: vec![allow([0_u8; 16].into(), 0)],
        ..pair.b.as_peer()
    };
    pair.a.set_peer(everything, pair.now);
    pair.a_sends(&[7; 1_300]);
    let data = pair.a.take_wire(pair.now).pop().unwrap();
    // Next header, offset and whether more follow.
    let fragment = |offset: u8| {
        let header = [17, 0, 0, offset | 1, 0, 0, 0, 1];
        let ports = [0xca, 0x6c, 0xca, 0x6c, 5, 0x80, 0, 0];
        let payload = [&header, &ports, &data[..1_200]].concat();
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 44, 64];
        packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        packet.extend([0xfd; 16]);
        packet.extend(endpoint.octets());
        packet.extend(payload);
        packet
    };
    pair.a.send(&fragment(0), pair.now);
    assert_eq!(pair.a.take_wire(pair.now).len(), 0);
    assert_eq!(pair.a.drops(DropReason::OutboundLoop), 1);
    // What comes behind it cannot be told from others.
    pair.a.send(&fragment(8), pair.now);
    assert_eq!(pair.a.take_wire(pair.now).len(), 1);
}

#[test]
fn a_packet_too_long_for_the_path_is_answered_by_icmp_for_ten_minutes() {
    let mut pair = Pair::connected();
    let mut long = ipv4(pair.a.inner, pair.b.inner, &[1; 1380]);
    long[6] = 0x40;
    let refused = 1400 + 8 + 32;
    let to = pair.b.address;
    pair.a.node.handle_too_big(to, refused, pair.now);
    pair.a.send(&long, pair.now);
    let reply = pair.a.node.poll_reply().expect("an ICMP error");
    assert_eq!(reply[20..22], [3, 4]);
    // The next smaller path MTU is 1,400 bytes, including the outer headers and our own.
    let fits = 1400 - 48 - 32;
    assert_eq!(reply[26..28], u16::to_be_bytes(fits));
    assert_eq!(pair.a.drops(DropReason::OutboundTooBig), 1);

    let shorter = ipv4(pair.a.inner, pair.b.inner, &vec![1; fits as usize - 20]);
    pair.a.send(&shorter, pair.now);
    let wire = pair.a.take_wire(pair.now);
    assert_eq!(
        wire[0].len(),
        1400 - 48,
        "padding does not exceed the limit"
    );

    pair.pass(601 * SECOND);
    pair.a.send(&long, pair.now);
    assert!(pair.a.node.poll_reply().is_none());
}

#[test]
fn a_packet_longer_than_any_datagram_is_answered_not_lost_silently() {
    let mut pair = Pair::connected();
    pair.a.node.set_mtu(u16::MAX);
    let mut long = ipv4(pair.a.inner, pair.b.inner, &[1; 65_480 - 20]);
    long[6] = 0x40;
    pair.a.send(&long, pair.now);
    let reply = pair.a.node.poll_reply().expect("an ICMP error");
    assert_eq!(reply[26..28], 65_475u16.to_be_bytes());
}

#[test]
fn unsendable_packets_are_counted_by_reason() {
    let mut pair = Pair::new();
    let nowhere = ipv4(pair.a.inner, [10, 9, 9, 9].into(), &[]);
    pair.a.send(&nowhere, pair.now);
    pair.a.send(&[0x45, 0, 0], pair.now);
    pair.a.send(&[0; 40], pair.now);
    pair.b_sends(b"b does not know the endpoint of a");
    assert_eq!(pair.a.drops(DropReason::OutboundNoRoute), 1);
    assert_eq!(pair.a.drops(DropReason::OutboundMalformed), 2);
    assert_eq!(pair.b.drops(DropReason::OutboundNoEndpoint), 1);
    for host in [&mut pair.a, &mut pair.b] {
        let reply = host.node.poll_reply().expect("an ICMP error");
        assert_eq!(reply[20..22], [3, 1], "host unreachable");
        assert_eq!(host.node.poll_reply(), None);
    }
}

#[test]
fn a_peer_cannot_send_from_an_address_that_is_not_its_own() {
    let mut pair = Pair::connected();
    let forged = ipv4([10, 0, 0, 77].into(), pair.b.inner, &[]);
    pair.a.send(&forged, pair.now);
    pair.settle();
    assert_eq!(pair.b.delivered.len(), 0);
    assert_eq!(pair.b.drops(DropReason::InboundForeignSource), 1);
}

#[test]
fn a_peer_cannot_send_from_a_subnet_carved_out_for_another() {
    let mut pair = Pair::connected();
    let mut wide = pair.a.as_peer();
    wide.allowed_ips = vec![allow([10, 0, 0, 0].into(), 24)];
    pair.b.set_peer(wide, pair.now);
    let mut other = Host::new(77).as_peer();
    other.allowed_ips = vec![allow([10, 0, 0, 77].into(), 32)];
    pair.b.set_peer(other, pair.now);

    for (source, delivered) in [(78, 1), (77, 1)] {
        let packet = ipv4([10, 0, 0, source].into(), pair.b.inner, &[]);
        pair.a.send(&packet, pair.now);
        pair.settle();
        assert_eq!(pair.b.delivered.len(), delivered, "from 10.0.0.{source}");
    }
    assert_eq!(pair.b.drops(DropReason::InboundForeignSource), 1);
}

#[test]
fn unauthentic_datagrams_are_counted_by_reason_and_change_nothing() {
    let mut pair = Pair::connected();
    pair.a_sends(b"once");
    let wire = pair.a.take_wire(pair.now);
    let stranger = ([203, 0, 113, 5], 9).into();
    let before = pair.b.snapshot(pair.now).peers[0].endpoint;

    let mut forged = wire[0].clone();
    *forged.last_mut().unwrap() ^= 1;
    pair.b.receive(&forged, stranger, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundBadTag), 1);

    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    pair.b.receive(&wire[0], stranger, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundReplay), 1);

    let mut unknown = wire[0].clone();
    unknown[4..8].copy_from_slice(&[9; 4]);
    pair.b.receive(&unknown, stranger, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundUnknownSession), 1);

    for rubbish in [
        &[][..],
        &[1],
        &[4; 32],
        &[1, 0, 0, 0],
        &[4, 0, 0, 0],
        &[0; 148],
    ] {
        pair.b.receive(rubbish, stranger, pair.now);
    }
    assert_eq!(pair.b.drops(DropReason::InboundNotWireGuard), 6);

    assert_eq!(pair.b.delivered.len(), 1);
    assert_eq!(pair.b.snapshot(pair.now).peers[0].endpoint, before);
}

#[test]
fn a_counter_beyond_the_limit_of_a_session_is_not_even_decrypted() {
    let mut pair = Pair::connected();
    pair.a_sends(b"x");
    let mut wire = pair.a.take_wire(pair.now);
    wire[0][8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let from = pair.a.address;
    pair.b.receive(&wire[0], from, pair.now);
    assert_eq!(pair.b.drops(DropReason::InboundExpiredSession), 1);
    assert_eq!(pair.b.drops(DropReason::InboundBadTag), 0);
}

#[test]
fn a_full_sink_loses_nothing() {
    let mut pair = Pair::connected();
    pair.a_sends(b"wait");
    let wire = pair.a.take_wire(pair.now);
    let from = pair.a.address;
    pair.b.slots = 0;
    assert_eq!(pair.b.offer(&wire[0], from, pair.now), Err(SinkFull));
    assert_eq!(pair.b.offer(&wire[0], from, pair.now), Err(SinkFull));
    pair.b.slots = 1;
    assert_eq!(pair.b.offer(&wire[0], from, pair.now), Ok(()));
    assert_eq!(pair.b.delivered.len(), 1);
}

#[test]
fn an_authenticated_datagram_from_elsewhere_moves_the_endpoint() {
    let mut pair = Pair::connected();
    pair.a_sends(b"I have moved");
    let wire = pair.a.take_wire(pair.now);
    let elsewhere = ([203, 0, 113, 5], 4321).into();
    pair.b.receive(&wire[0], elsewhere, pair.now);
    assert_eq!(pair.b.snapshot(pair.now).peers[0].endpoint, Some(elsewhere));
}

#[test]
fn a_peer_that_keeps_moving_raises_at_most_one_question_about_its_route() {
    let mut pair = Pair::connected();
    while pair.b.node.poll_source_question().is_some() {}
    pair.now += SECOND;
    let mut from = pair.a.address;
    for port in 1..=1000 {
        from.set_port(port);
        pair.a_sends(b"from here and there");
        let datagram = pair.a.take_wire(pair.now).remove(0);
        pair.b.receive(&datagram, from, pair.now);
    }
    let questions = std::iter::from_fn(|| pair.b.node.poll_source_question()).count();
    assert!(questions <= 1, "{questions} questions");
    assert_eq!(pair.b.snapshot(pair.now).peers[0].endpoint, Some(from));
}

#[test]
fn until_a_question_is_answered_replies_leave_from_the_address_that_was_asked() {
    let mut pair = Pair::connected();
    answer_all(&mut pair.b, true);
    pair.now += SECOND;
    for n in 3..100 {
        asks_at(&mut pair, [192, 0, 2, n], 2);
        assert_eq!(reply_source(&mut pair), Some([192, 0, 2, n].into()), "{n}");
        answer_all(&mut pair.b, true);
    }
}

#[test]
fn a_question_put_off_is_asked_at_the_next_use_and_its_answer_holds() {
    let mut pair = Pair::connected();
    answer_all(&mut pair.b, true);
    pair.now += SECOND;
    for n in [3, 4] {
        asks_at(&mut pair, [192, 0, 2, n], 2);
        answer_all(&mut pair.b, true);
    }
    assert_eq!(reply_source(&mut pair), Some([192, 0, 2, 4].into()));
    pair.now += SECOND / 10;
    reply_source(&mut pair);
    assert_eq!(answer_all(&mut pair.b, false), 1);
    assert_eq!(reply_source(&mut pair), None);
    // The peer goes elsewhere and back, by another port, within the limit of questions.
    for (n, source) in [(3, Some([192, 0, 2, 3].into())), (4, None), (4, None)] {
        let port = pair.a.address.port() + 1;
        pair.a.address.set_port(port);
        asks_at(&mut pair, [192, 0, 2, n], 2);
        assert_eq!(reply_source(&mut pair), source, "{n}");
    }
    // Once routes have changed, the answers are outdated.
    pair.b.node.handle_routes_changed();
    pair.now += SECOND;
    reply_source(&mut pair);
    assert_eq!(answer_all(&mut pair.b, true), 1);
    assert_eq!(reply_source(&mut pair), Some([192, 0, 2, 4].into()));
}

#[test]
fn a_peer_that_alternates_between_known_ways_raises_no_further_questions() {
    let mut pair = Pair::connected();
    answer_all(&mut pair.b, true);
    let ways = [([192, 0, 2, 3], 2, true), ([192, 0, 2, 4], 3, false)];
    for (address, interface, is_same) in ways {
        pair.now += SECOND;
        asks_at(&mut pair, address, interface);
        assert_eq!(answer_all(&mut pair.b, is_same), 1);
    }
    for (address, interface, is_same) in ways.repeat(10) {
        pair.now += SECOND;
        asks_at(&mut pair, address, interface);
        assert_eq!(answer_all(&mut pair.b, true), 0);
        assert_eq!(reply_source(&mut pair), is_same.then_some(address.into()));
    }
}

/// Delivers a packet from `a` that arrived at this address of `b`.
fn asks_at(pair: &mut Pair, address: [u8; 4], interface: u32) {
    pair.a_sends(b"question");
    let bytes = pair.a.take_wire(pair.now).remove(0);
    let arrival = Arrival {
        address: address.into(),
        interface,
    };
    pair.b.receive_at(&bytes, pair.a.address, arrival, pair.now);
}

/// The address that a packet from `b` leaves from.
fn reply_source(pair: &mut Pair) -> Option<IpAddr> {
    let mut sink = Sent::default();
    let packet = TestPacket::new(&ipv4(pair.b.inner, pair.a.inner, b"answer"));
    let mut burst = Burst([packet].into());
    let b = &mut pair.b.node;
    b.handle_outbound(&mut burst, pair.now, &mut Staging::default(), &mut sink);
    sink.0[0].0.source
}

/// Answers the questions that wait; returns their number.
fn answer_all(host: &mut Host, is_same_interface: bool) -> usize {
    let mut answered = 0;
    while let Some(question) = host.node.poll_source_question() {
        host.node
            .answer_source_question(&question, is_same_interface);
        answered += 1;
    }
    answered
}

#[test]
fn changes_of_routes_raise_a_bounded_number_of_questions_about_all_peers() {
    let (mut hub, mut now) = (Host::new(2), 1_000 * SECOND);
    let mut peers: Vec<_> = (3..=255).map(Host::new).collect();
    for peer in &mut peers {
        hub.set_peer(peer.as_peer(), now);
        let mut to_hub = hub.as_peer();
        to_hub.endpoint = Some(hub.address);
        peer.set_peer(to_hub, now);
        send_to(&mut hub, peer, now);
        now += SECOND / 100;
    }
    let mut questions = Vec::new();
    // The bucket is full, and a tenth of a second later it has a hundred tokens more.
    for pause in [SECOND, SECOND / 10] {
        while hub.node.poll_source_question().is_some() {}
        now += pause;
        hub.node.handle_routes_changed();
        for peer in &mut peers {
            send_to(&mut hub, peer, now);
        }
        questions.push(std::iter::from_fn(|| hub.node.poll_source_question()).count());
    }
    assert_eq!(hub.delivered.len(), 3 * peers.len());
    assert_eq!(questions, [253, 103]);
    // The others keep the source address that nothing has refuted.
    for peer in &peers {
        let mut sink = Sent::default();
        let packet = TestPacket::new(&ipv4(hub.inner, peer.inner, b"answer"));
        let mut burst = Burst([packet].into());
        let mut staging = Staging::default();
        hub.node
            .handle_outbound(&mut burst, now, &mut staging, &mut sink);
        assert_eq!(sink.0[0].0.source, Some(hub.address.ip()));
    }
}

/// Sends a packet, after a handshake if need be.
fn send_to(hub: &mut Host, peer: &mut Host, now: Duration) {
    peer.send(&ipv4(peer.inner, hub.inner, b"hello"), now);
    for _ in 0..2 {
        for bytes in peer.take_wire(now) {
            hub.receive(&bytes, peer.address, now);
        }
        for bytes in hub.take_wire(now) {
            peer.receive(&bytes, hub.address, now);
        }
    }
}
