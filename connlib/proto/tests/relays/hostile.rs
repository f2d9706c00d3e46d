//! Servers and strangers that lie.

use std::{net::SocketAddr, time::Duration};

use convoy_proto::{
    PacketSink, RelayEvent, RelayId,
    config::{RelayState, RelayTransport},
    counters::DropReason,
};

use crate::{
    common::{SECOND, ipv4},
    world::{Firewall, World, relay},
};

#[test]
fn a_flood_of_forged_channel_data_is_counted_and_delivers_nothing() {
    let mut world = World::relayed();
    let (server, a) = (world.server_address, world.a.address);
    let before = world.a_received().len();
    for channel in 0x4000..=0x4FFF_u16 {
        let mut frame = channel.to_be_bytes().to_vec();
        frame.extend([0, 32]);
        frame.extend([4; 32]);
        world.put(server, a, &frame);
    }
    assert_eq!(world.a_received().len(), before);
    let unknown = world.a.drops(DropReason::InboundRelayUnknownChannel);
    assert_eq!(unknown, 0x0FFF, "all but the channel of the peer");
    assert_eq!(world.a.drops(DropReason::InboundNotWireGuard), 1);
    // The same from elsewhere is none of the server's.
    let stranger = SocketAddr::from(([203, 0, 113, 66], 3478));
    world.put(stranger, a, &[0x40, 0, 0, 0]);
    assert_eq!(
        world.a.drops(DropReason::InboundRelayUnknownChannel),
        0x0FFF
    );
    world.talk(10 * SECOND);
    assert_eq!(world.lost, 0);
}

#[test]
fn handshakes_and_data_of_others_in_the_peers_channel_move_nothing() {
    let mut world = World::relayed();
    let (server, a) = (world.server_address, world.a.address);
    // The first channel of an allocation.
    let mut recorded = Vec::new();
    for first in [1_u8, 2, 3, 4] {
        let len = [148, 92, 64, 128][usize::from(first) - 1];
        let mut message = vec![0; len];
        message[0] = first;
        for channel in 0x4000..=0x4002_u16 {
            let mut frame = channel.to_be_bytes().to_vec();
            frame.extend((len as u16).to_be_bytes());
            frame.extend(&message);
            recorded.push(frame);
        }
    }
    for frame in &recorded {
        world.put(server, a, frame);
    }
    let snapshot = world.snapshot();
    assert_eq!(snapshot.peers[0].endpoint, Some(world.peers[0].address));
    assert_eq!(snapshot.peers[1].relay, None);
    world.talk(10 * SECOND);
    assert_eq!(world.lost, 0);
    world.only_peers_were_sent_to();
}

#[test]
fn what_a_server_takes_out_of_its_channel_data_moves_nothing() {
    let mut world = World::relayed();
    let (server, a, now) = (world.server_address, world.a.address, world.now);
    let (from, to) = (world.peers[0].inner, world.a.inner);
    let key = world.a.public_key();
    let peer = &mut world.peers[0];
    let mut messages = peer.sent_for(&[ipv4(from, to, b"data")], now);
    peer.node.handshake_now(&key, now);
    peer.tick(now);
    messages.extend(peer.take_sent(now));
    assert_eq!(messages.len(), 2);
    let before = world.a_received().len();
    for (_, message) in &messages {
        world.put(server, a, message);
        let peer = &world.snapshot().peers[0];
        assert_eq!(peer.endpoint, Some(world.peers[0].address));
        assert!(peer.relay.is_some());
    }
    assert_eq!(world.a_received().len(), before);
    assert_eq!(world.a.drops(DropReason::InboundRelayStranger), 2);
    world.talk(10 * SECOND);
    assert_eq!(world.lost, 0);
}

#[test]
fn forged_channel_data_does_not_hide_that_a_server_has_forgotten_all() {
    let mut world = World::relayed();
    let (server, a) = (world.server_address, world.a.address);
    world.talk(5 * SECOND);
    world.restart_server();
    let mut frame = vec![0x40, 0, 0, 64, 4];
    frame.resize(4 + 64, 0);
    for _ in 0..20 {
        world.put(server, a, &frame);
        world.talk(SECOND);
    }
    let lost = world.lost;
    assert!(lost > 0);
    world.talk(10 * SECOND);
    assert_eq!(world.lost, lost);
}

#[test]
fn a_server_that_names_the_address_of_a_peer_as_relayed_has_failed() {
    // Of a peer that it relays to, and of one that it has never heard of.
    for n in [0, 1] {
        let mut world = World::new(Firewall::OnlyTurn);
        world.gives = Some(world.peers[n].address);
        world.a_sends(0, b"hello");
        world.run(Duration::from_secs(8));
        let state = world.snapshot().relays[0].state.clone();
        let expected = "the relay gives an address that cannot be its own".to_owned();
        assert_eq!(state, RelayState::Failed(expected));
        assert_eq!(world.relayed_data, 0);
    }
}

#[test]
fn a_server_that_is_silent_leaves_the_direct_way_in_use() {
    let mut world = World::new(Firewall::OnlyTurn);
    let silent = SocketAddr::from(([203, 0, 113, 7], 3478));
    world.a.node.set_relays(&[relay(silent)], world.now);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(40));
    let state = world.snapshot().relays[0].state.clone();
    assert!(!matches!(state, RelayState::Ready(_)), "{state:?}");
    world.firewall = Firewall::Open;
    world.run(Duration::from_secs(11));
    assert_eq!(world.received(0), [b"hello"]);
    assert_eq!(world.snapshot().peers[0].relay, None);
}

#[test]
fn truncated_messages_of_the_server_change_nothing() {
    let mut world = World::relayed();
    let (server, a) = (world.server_address, world.a.address);
    for bytes in [
        &[][..],
        &[0x40],
        &[0x40, 0, 0, 9, 1],
        &[0x01, 0x01, 0, 0],
        &[0x7f; 40],
    ] {
        world.put(server, a, bytes);
    }
    assert!(world.a.drops(DropReason::InboundRelayStranger) >= 4);
    world.talk(5 * SECOND);
    assert_eq!(world.lost, 0);
}

#[test]
fn frames_of_a_server_without_a_stream_are_ignored() {
    let mut world = World::new(Firewall::OnlyTurn);
    let id = connecting(&mut world);
    let frames = [&b"\x40\x00\x00\x00"[..], b"\x01\x03\x00\x00"];
    let handled = world
        .a
        .node
        .handle_relay_frames(id, frames, world.now, &mut Full);
    assert_eq!(handled.datagrams, 2);
    world.a.node.relay_opened(id, world.now);
    let request = world
        .a
        .node
        .poll_relay_frame()
        .expect("an ALLOCATE request");
    assert_eq!((request.relay, &request.bytes[..2]), (id, &[0, 3][..]));
    world.a.node.relay_closed(id, "reset", world.now);
    let state = world.snapshot().relays[0].state.clone();
    assert_eq!(state, RelayState::Failed("reset".to_owned()));
}

#[test]
fn frames_of_a_server_that_has_been_removed_are_counted() {
    let mut world = World::new(Firewall::OnlyTurn);
    let id = connecting(&mut world);
    world.a.node.set_relays(&[], world.now);
    let frames = [&b"\x40\x00\x00\x00"[..], b"\x01\x03\x00\x00"];
    let node = &mut world.a.node;
    let handled = node.handle_relay_frames(id, frames, world.now, &mut Full);
    assert_eq!(handled.datagrams, 2);
    assert_eq!(world.a.drops(DropReason::InboundRelayGone), 2);
}

#[test]
fn messages_that_wait_for_a_server_are_counted_when_it_is_removed() {
    let mut world = World::new(Firewall::OnlyTurn);
    let silent = relay(SocketAddr::from(([203, 0, 113, 7], 3478)));
    world.a.node.set_relays(&[silent], world.now);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(6));
    assert_eq!(world.a.drops(DropReason::OutboundRelayNotReady), 0);
    world.a.node.set_relays(&[], world.now);
    assert_eq!(world.a.drops(DropReason::OutboundRelayNotReady), 1);
}

#[test]
fn messages_and_frames_that_wait_for_a_server_are_counted_when_the_link_goes_down() {
    let mut world = World::new(Firewall::OnlyTurn);
    let id = connecting(&mut world);
    world.a.node.relay_opened(id, world.now);
    world.a.node.set_link(false, world.now);
    // The packet, the initiation for it, and the request to the server.
    assert_eq!(world.a.drops(DropReason::OutboundLinkDown), 3);
    assert_eq!(world.a.node.poll_relay_frame(), None);
}

/// Lets a server by TLS be asked for; returns its identifier.
fn connecting(world: &mut World) -> RelayId {
    let mut stream = relay(world.server_address);
    stream.transport = RelayTransport::Tls;
    world.a.node.set_relays(&[stream], world.now);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(6));
    let event = world.a.node.poll_relay_event();
    let Some(RelayEvent::Connect(id, wanted)) = event else {
        panic!("{event:?}");
    };
    assert_eq!(wanted.server, world.server_address);
    id
}

/// Takes no packet.
struct Full;

impl PacketSink for Full {
    fn reserve(&mut self, _: usize) -> bool {
        false
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        std::iter::empty()
    }

    fn slot(&mut self, _: usize) -> Option<&mut [u8]> {
        None
    }

    fn commit(&mut self, _: usize, _: usize) {}

    fn release(&mut self) {}
}
