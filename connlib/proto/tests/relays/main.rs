//! Peers that are reached through TURN servers, under simulated time: nodes, `turn-server-proto`, and a firewall.

#[path = "../common/mod.rs"]
mod common;
mod hostile;
#[path = "../common/turn.rs"]
mod turn;
mod world;

use std::{net::SocketAddr, time::Duration};

use convoy_proto::{
    config::{RelayState, RelayTransport},
    counters::DropReason,
};

use common::{SECOND, ipv4};
use world::{Firewall, PASSWORD, World, relay};

#[test]
fn a_peer_behind_blocked_udp_gets_data_by_the_relay_and_keeps_its_endpoint() {
    let mut world = World::new(Firewall::OnlyTurn);
    world.a_sends(0, b"held for the handshake");
    world.run(Duration::from_secs(8));
    assert_eq!(world.received(0), [b"held for the handshake"]);
    world.b_sends(0, b"answer");
    world.a_sends(0, b"more");
    world.run(SECOND);
    assert_eq!(world.a_received(), [b"answer"]);
    assert_eq!(world.received(0), [&b"held for the handshake"[..], b"more"]);
    let snapshot = world.snapshot();
    let peer = &snapshot.peers[0];
    assert_eq!(peer.endpoint, Some(world.peers[0].address));
    let by = peer.relay.map(|it| (it.server, it.transport));
    assert_eq!(by, Some((world.server_address, RelayTransport::Udp)));
    let state = &snapshot.relays[0];
    assert!(matches!(state.state, RelayState::Ready(_)), "{state:?}");
    assert_eq!(state.carries, 1);
    world.only_peers_were_sent_to();
}

#[test]
fn packets_that_never_stop_do_not_keep_a_peer_from_the_relay() {
    let mut world = World::new(Firewall::OnlyTurn);
    for _ in 0..40 {
        world.a_sends(0, b"again");
        world.run(Duration::from_millis(250));
    }
    assert!(!world.received(0).is_empty(), "{:?}", world.snapshot());
}

#[test]
fn where_udp_passes_no_server_is_asked() {
    let mut world = World::new(Firewall::Open);
    for _ in 0..200 {
        world.a_sends(0, b"data");
        world.b_sends(0, b"data");
        world.run(2 * SECOND);
    }
    assert_eq!(world.received(0).len(), 200);
    assert_eq!(world.at_server, 0);
    assert_eq!(world.snapshot().relays[0].state, RelayState::Idle);
}

#[test]
fn data_returns_to_the_direct_way_once_udp_passes_and_the_allocation_is_given_back() {
    let mut world = World::relayed();
    world.firewall = Firewall::Open;
    world.talk(Duration::from_secs(130));
    assert_eq!(world.snapshot().peers[0].relay, None);
    let before = world.relayed_data;
    world.talk(Duration::from_secs(60));
    assert_eq!(world.relayed_data, before);
    assert_eq!(world.snapshot().relays[0].state, RelayState::Idle);
    assert_eq!(world.lost, 0, "nothing is lost at the switch");
}

#[test]
fn a_change_of_network_brings_the_direct_way_back_at_once() {
    let mut world = World::relayed();
    world.firewall = Firewall::Open;
    let key = world.peers[0].public_key();
    world.a.node.handshake_now(&key, world.now);
    world.talk(SECOND);
    assert_eq!(world.snapshot().peers[0].relay, None);
}

/// It takes time for each peer that needs a server, so one call of timers does it for all messages.
#[test]
fn an_initiation_by_the_relay_leaves_the_servers_to_the_next_call_of_timers() {
    let mut world = World::relayed();
    // The session ends.
    world.run(Duration::from_secs(200));
    let packet = ipv4(world.a.inner, world.peers[0].inner, b"data");
    world.a.sent_for(&[packet], world.now);
    let sent = world.a.take_sent(world.now);
    assert!(sent.iter().any(|(to, _)| *to == world.server_address));
    assert_eq!(world.a.node.poll_timeout(), Some(world.now));
    world.a.tick(world.now);
    assert!(world.a.node.poll_timeout() > Some(world.now));
}

#[test]
fn rekeys_go_on_through_the_relay_for_an_hour() {
    let mut world = World::relayed();
    world.talk(Duration::from_secs(3600));
    assert_eq!(world.lost, 0);
    assert!(world.a.node.counters().handshakes > 25);
    world.only_peers_were_sent_to();
}

#[test]
fn where_only_the_way_back_is_blocked_the_relay_is_used_as_well() {
    let mut world = World::new(Firewall::NoneBack);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(17));
    assert_eq!(world.received(0), [b"hello"]);
    world.b_sends(0, b"answer");
    world.run(SECOND);
    assert_eq!(world.a_received(), [b"answer"]);
}

#[test]
fn a_server_that_restarts_is_asked_again() {
    let mut world = World::relayed();
    world.restart_server();
    world.talk(Duration::from_secs(60));
    let before = world.received(0).len();
    world.talk(Duration::from_secs(10));
    assert!(world.received(0).len() >= before + 9);
}

#[test]
fn keepalives_alone_do_not_make_the_server_answer_whether_it_lives() {
    let mut world = World::relayed();
    world.keep_alive(25);
    world.run(Duration::from_secs(60));
    let before = world.at_server;
    world.run(Duration::from_secs(600));
    // Keepalives, six handshakes with their confirmations, and what keeps the allocation.
    let sent = world.at_server - before;
    assert!((24..45).contains(&sent), "{sent}");
}

#[test]
fn wrong_credentials_are_told_and_right_ones_help_at_once() {
    let mut world = World::new(Firewall::OnlyTurn);
    let mut wrong = relay(world.server_address);
    wrong.password.0 = "wrong".to_owned();
    world.a.node.set_relays(&[wrong.clone()], world.now);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(8));
    let state = &world.snapshot().relays[0].state;
    let expected = "the relay refuses the credentials".to_owned();
    assert_eq!(*state, RelayState::Failed(expected));
    let right = relay(world.server_address);
    world.a.node.set_relays(&[right], world.now);
    world.run(Duration::from_secs(6));
    assert_eq!(world.received(0), [b"hello"]);
    let snapshot = world.snapshot();
    let printed = format!("{:?} {snapshot:?}", world.a.node);
    assert!(!printed.contains(PASSWORD), "{printed}");
}

#[test]
fn after_a_silent_server_the_next_one_is_asked() {
    let mut world = World::new(Firewall::OnlyTurn);
    let silent = relay(SocketAddr::from(([203, 0, 113, 7], 3478)));
    let second = relay(world.server_address);
    world.a.node.set_relays(&[silent, second], world.now);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(20));
    assert_eq!(world.received(0), [b"hello"]);
    let states = world.snapshot().relays;
    assert_eq!([states[0].carries, states[1].carries], [0, 1]);
}

#[test]
fn after_a_server_that_falls_silent_once_it_has_told_its_nonce_the_next_one_is_asked() {
    let mut world = World::new(Firewall::OnlyTurn);
    let mute = SocketAddr::from(([203, 0, 113, 7], 3478));
    let second = relay(world.server_address);
    world.a.node.set_relays(&[relay(mute), second], world.now);
    world.challenges = Some(mute);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(20));
    assert_eq!(world.received(0), [b"hello"]);
    let states = world.snapshot().relays;
    assert_eq!([states[0].carries, states[1].carries], [0, 1]);
}

#[test]
fn two_peers_share_an_allocation_and_one_of_them_may_be_direct() {
    let mut world = World::new(Firewall::OnlyTurn);
    for n in [0, 1] {
        world.a_sends(n, b"hello");
    }
    world.run(Duration::from_secs(8));
    for n in [0, 1] {
        assert_eq!(world.received(n), [b"hello"]);
        world.b_sends(n, b"answer");
    }
    world.run(SECOND);
    assert_eq!(world.a_received().len(), 2);
    assert_eq!(world.snapshot().relays[0].carries, 2);
    // The second peer is reached directly from now on.
    let second = world.peers[1].address;
    world.firewall = Firewall::Only(second);
    for _ in 0..140 {
        for n in [0, 1] {
            world.a_sends(n, b"data");
        }
        world.run(SECOND);
    }
    let peers = world.snapshot().peers;
    let relays: Vec<_> = peers
        .iter()
        .map(|it| it.relay.map(|by| by.server))
        .collect();
    assert_eq!(relays, [Some(world.server_address), None]);
    assert_eq!(
        (world.received(0).len(), world.received(1).len()),
        (141, 141)
    );
}

#[test]
fn a_peer_of_ipv6_is_reached_through_a_server_of_ipv4() {
    let mut world = World::new(Firewall::OnlyTurn);
    let address: SocketAddr = "[2001:db8::2]:51820".parse().unwrap();
    world.move_peer(0, address);
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(8));
    assert_eq!(world.received(0), [b"hello"]);
    assert_eq!(world.snapshot().peers[0].endpoint, Some(address));
}

#[test]
fn peers_of_both_families_get_their_own_data_by_one_server() {
    let mut world = World::new(Firewall::OnlyTurn);
    world.move_peer(1, "[2001:db8::3]:51820".parse().unwrap());
    for _ in 0..20 {
        for peer in 0..2 {
            world.a_sends(peer, &[peer as u8]);
        }
        world.run(SECOND);
    }
    for peer in 0..2 {
        let expected: &[u8] = &[peer as u8];
        assert_eq!(world.received(peer), [expected; 20]);
    }
}

#[test]
fn a_peer_of_a_family_that_the_server_lacks_disturbs_no_other() {
    let mut world = World::relayed();
    world.lacks_ipv6 = true;
    world.move_peer(1, "[2001:db8::3]:51820".parse().unwrap());
    world.a_sends(1, b"in vain");
    world.talk(Duration::from_secs(20));
    let before = world.lost;
    world.a_sends(1, b"in vain");
    world.talk(Duration::from_secs(100));
    assert_eq!((world.lost, world.received(1).len()), (before, 0));
}

#[test]
fn without_servers_any_longer_data_goes_directly() {
    let mut world = World::relayed();
    world.firewall = Firewall::Open;
    world.a.node.set_relays(&[], world.now);
    world.a_sends(0, b"direct");
    world.run(SECOND);
    assert_eq!(world.received(0).last().unwrap(), b"direct");
    let snapshot = world.snapshot();
    assert_eq!((snapshot.peers[0].relay, snapshot.relays.len()), (None, 0));
}

#[test]
fn a_link_that_comes_back_tries_the_direct_way_first() {
    let mut world = World::relayed();
    world.a.node.set_link(false, world.now);
    assert_eq!(world.snapshot().peers[0].relay, None);
    world.a.node.set_link(true, world.now);
    world.restart_server();
    world.a_sends(0, b"hello");
    world.run(Duration::from_secs(8));
    assert_eq!(world.received(0).last().unwrap(), b"hello");
}

#[test]
fn a_removed_peer_is_no_longer_sent_to_and_the_allocation_ends() {
    let mut world = World::relayed();
    world.remove_peer(0);
    world.run(Duration::from_secs(40));
    let before = world.at_server;
    world.run(Duration::from_secs(3600));
    assert_eq!(world.at_server, before);
    assert_eq!(world.snapshot().relays[0].state, RelayState::Idle);
}

#[test]
fn trains_leave_in_order_and_each_datagram_has_its_header() {
    let mut world = World::relayed();
    let sizes = [1420, 1420, 1420, 64, 9000, 1420];
    let packets = sizes.map(|len| vec![7; len - 20]);
    world.a_sends_all(0, &packets);
    assert!(
        world
            .last_sent
            .iter()
            .all(|it| it.0 == world.server_address)
    );
    let first = world.last_sent[0].1.len();
    assert_eq!(first, 1420 + 32 + 4);
    world.run(SECOND);
    let received = world.received(0);
    let received = &received[received.len() - sizes.len()..];
    assert_eq!(received, packets);
}

#[test]
fn a_path_that_is_too_narrow_for_the_header_limits_packets_by_four_bytes_more() {
    let mut world = World::relayed();
    let server = world.server_address;
    world.a.node.handle_too_big(server, 1456, world.now);
    world.a_sends(0, &[0; 1417 - 20]);
    assert_eq!(world.a.drops(DropReason::OutboundTooBig), 1);
    world.a_sends(0, &[0; 1416 - 20]);
    world.run(SECOND);
    assert_eq!(world.received(0).last().unwrap().len(), 1416 - 20);
}
