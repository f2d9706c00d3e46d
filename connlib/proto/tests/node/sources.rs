//! The source address of datagrams, when the network has changed.

use std::net::IpAddr;

use convoy_proto::Arrival;

use crate::common::*;

const CABLE: [u8; 4] = [192, 0, 2, 1];
const WIFI: [u8; 4] = [198, 51, 100, 1];

/// Wi-Fi beside a cable: the former address still works.
#[test]
fn data_under_way_when_the_network_changes_does_not_bring_the_former_source_back() {
    let mut pair = at_the_cable();
    pair.b_sends(b"under way");
    let under_way = pair.b.take_wire(pair.now);
    let initiation = change_network(&mut pair);
    arrive(&mut pair, &under_way, CABLE);
    assert_eq!(source(&mut pair), None);
    pair.a.tick(pair.now);
    assert_eq!(
        source(&mut pair),
        None,
        "nor do datagrams bring it back later"
    );
    let answers = answers(&mut pair, &initiation);
    arrive(&mut pair, &answers, WIFI);
    assert_eq!(source(&mut pair), Some(WIFI.into()));
}

#[test]
fn nor_does_it_when_the_first_initiation_is_lost() {
    let mut pair = at_the_cable();
    change_network(&mut pair);
    pair.now += 6 * SECOND;
    pair.a.tick(pair.now);
    let initiation = pair.a.take_wire(pair.now);
    assert_eq!(initiation.len(), 1, "it is sent again");
    pair.b_sends(b"under way");
    let under_way = pair.b.take_wire(pair.now);
    arrive(&mut pair, &under_way, CABLE);
    assert_eq!(source(&mut pair), None);
    let answers = answers(&mut pair, &initiation);
    arrive(&mut pair, &answers, WIFI);
    assert_eq!(source(&mut pair), Some(WIFI.into()));
}

/// A peer with several threads may handle the initiation before data that has come earlier, and go back for a moment.
#[test]
fn nor_does_it_when_the_answer_overtakes_it() {
    let mut pair = at_the_cable();
    pair.b_sends(b"under way");
    let under_way = pair.b.take_wire(pair.now);
    let initiation = change_network(&mut pair);
    let answers = answers(&mut pair, &initiation);
    arrive(&mut pair, &answers, WIFI);
    arrive(&mut pair, &under_way, CABLE);
    assert_eq!(source(&mut pair), Some(WIFI.into()));
    pair.now += 10 * SECOND;
    pair.b_sends(b"to the former address");
    let data = pair.b.take_wire(pair.now);
    arrive(&mut pair, &data, CABLE);
    assert_eq!(source(&mut pair), Some(CABLE.into()));
}

#[test]
fn if_the_answer_comes_to_the_former_address_it_is_the_source_again() {
    let mut pair = at_the_cable();
    let initiation = change_network(&mut pair);
    let answers = answers(&mut pair, &initiation);
    arrive(&mut pair, &answers, CABLE);
    assert_eq!(source(&mut pair), Some(CABLE.into()));
}

#[test]
fn once_the_handshake_is_over_the_peer_may_go_back_to_the_former_address() {
    let mut pair = at_the_cable();
    let initiation = change_network(&mut pair);
    let answers = answers(&mut pair, &initiation);
    arrive(&mut pair, &answers, WIFI);
    // An ordinary rekey, which is under way, leaves no address.
    pair.now += 130 * SECOND;
    pair.a_sends(b"this session is old");
    let sent = pair.a.take_wire(pair.now);
    assert!(sent.iter().any(|datagram| datagram[0] == 1));
    pair.b_sends(b"to the former address");
    let data = pair.b.take_wire(pair.now);
    arrive(&mut pair, &data, CABLE);
    assert_eq!(source(&mut pair), Some(CABLE.into()));
}

#[test]
fn a_handshake_that_is_given_up_leaves_the_former_address_no_longer() {
    let mut pair = at_the_cable();
    change_network(&mut pair);
    // The session is still usable then.
    let end = pair.now + 150 * SECOND;
    while let Some(due) = pair.a.node.poll_timeout().filter(|due| *due <= end) {
        pair.now = pair.now.max(due);
        pair.a.tick(pair.now);
        pair.a.take_wire(pair.now);
    }
    pair.b_sends(b"the other network leads nowhere");
    let data = pair.b.take_wire(pair.now);
    arrive(&mut pair, &data, CABLE);
    assert_eq!(source(&mut pair), Some(CABLE.into()));
}

/// A peer that moves meanwhile is followed, without the former source.
#[test]
fn a_peer_that_moves_while_the_answer_is_awaited_is_followed() {
    let mut pair = at_the_cable();
    change_network(&mut pair);
    pair.b.address.set_port(4321);
    pair.b_sends(b"from elsewhere");
    let data = pair.b.take_wire(pair.now);
    arrive(&mut pair, &data, CABLE);
    let endpoint = pair.a.snapshot(pair.now).peers[0].endpoint;
    assert_eq!(endpoint, Some(pair.b.address));
    assert_eq!(source(&mut pair), None);
}

/// A connected pair whose `a` has its sticky source at the cable.
fn at_the_cable() -> Pair {
    let mut pair = Pair::connected();
    pair.now += 10 * SECOND;
    pair.b_sends(b"to the cable");
    let data = pair.b.take_wire(pair.now);
    arrive(&mut pair, &data, CABLE);
    assert_eq!(source(&mut pair), Some(CABLE.into()));
    pair
}

/// Tells `a` that its network has changed; returns its initiation.
fn change_network(pair: &mut Pair) -> Vec<Vec<u8>> {
    let peer = pair.b.public_key();
    pair.a.node.handle_routes_changed();
    pair.a.node.handshake_now(&peer, pair.now);
    pair.a.tick(pair.now);
    let sent = pair.a.take_wire(pair.now);
    assert_eq!(sent.len(), 1);
    sent
}

/// The datagrams of `b` after these have reached it.
fn answers(pair: &mut Pair, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
    for datagram in datagrams {
        pair.b.receive(datagram, pair.a.address, pair.now);
    }
    pair.b.take_wire(pair.now)
}

/// Delivers datagrams of `b` at this address of `a`.
fn arrive(pair: &mut Pair, datagrams: &[Vec<u8>], address: [u8; 4]) {
    let arrival = Arrival {
        address: address.into(),
        interface: 2,
    };
    for bytes in datagrams {
        pair.a.receive_at(bytes, pair.b.address, arrival, pair.now);
    }
}

/// The address that a packet from `a` leaves from.
fn source(pair: &mut Pair) -> Option<IpAddr> {
    pair.a.take_wire(pair.now);
    let mut sink = Sent::default();
    let mut burst = Burst([TestPacket::new(&ipv4(pair.a.inner, pair.b.inner, b"data"))].into());
    let mut staging = convoy_proto::Staging::default();
    let node = &mut pair.a.node;
    node.handle_outbound(&mut burst, pair.now, &mut staging, &mut sink);
    sink.0[0].0.source
}
