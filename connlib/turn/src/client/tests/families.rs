//! Peers over IPv4 and over IPv6, and servers that have addresses of one family alone.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A world whose server has addresses of these families, and that is asked for a peer of each.
fn asked_for_both(has: Families) -> World {
    let mut world = World::new();
    world.has = has;
    let peers = [peer(1), peer_v6()];
    world.client.set_peers(&peers, world.now).unwrap();
    world.run(Duration::from_secs(5));
    world
}

fn relayed(world: &World) -> Addresses {
    match world.client.phase() {
        Phase::Ready(relayed) => relayed,
        other => panic!("{other:?} {:?}", world.events),
    }
}

#[test]
fn a_server_of_one_family_serves_its_peers_and_costs_no_wake_up_for_the_others() {
    for has in [Families::V4, Families::V6] {
        let mut world = asked_for_both(has);
        let (served, other) = match has {
            Families::V4 => (peer(1), peer_v6()),
            _ => (peer_v6(), peer(1)),
        };
        assert!(relayed(&world).reaching(served).is_some());
        assert_eq!(relayed(&world).reaching(other), None);
        assert!(world.events.contains(&Event::Failed(Failure::Family)));
        world.must_reach(served);
        world.client.note_received();
        assert_eq!(world.client.channel(other), None);
        let mut alone = World::new();
        alone.has = has;
        alone.client.set_peers(&[served], alone.now).unwrap();
        alone.run(Duration::from_secs(5));
        let due = [&world, &alone].map(|it| it.client.poll_timeout());
        assert_eq!(due[0], due[1]);
        let before = [world.sent, alone.sent];
        world.run(HOUR);
        alone.run(HOUR);
        let sent = [world.sent - before[0], alone.sent - before[1]];
        assert_eq!(sent[0], sent[1], "{:?}", world.events);
        world.must_reach(served);
    }
}

#[test]
fn a_server_without_addresses_of_either_family_has_failed() {
    let world = asked_for_both(Families::NONE);
    let phase = world.client.phase();
    assert!(matches!(phase, Phase::Paused(_)), "{:?}", world.events);
}

#[test]
fn a_server_that_lacks_the_only_family_has_failed() {
    for (has, peer) in [(Families::V4, peer_v6()), (Families::V6, peer(1))] {
        let mut world = World::new();
        world.has = has;
        world.client.set_peers(&[peer], world.now).unwrap();
        world.run(Duration::from_secs(5));
        assert!(world.events.contains(&Event::Failed(Failure::Family)));
        assert!(!matches!(world.client.phase(), Phase::Ready(_)));
    }
}

#[test]
fn a_server_that_refuses_every_request_with_ipv6_is_asked_for_ipv4() {
    let mut world = World::new();
    world.is_old = true;
    let peers = [peer(1), peer_v6()];
    world.client.set_peers(&peers, world.now).unwrap();
    world.run(Duration::from_secs(1));
    world.must_reach(peer(1));
    assert_eq!(relayed(&world).reaching(peer_v6()), None);
    world.events.clear();
    for n in 2..5 {
        let peers = [peer(1), peer_v6(), peer(n)];
        world.client.set_peers(&peers, world.now).unwrap();
        world.run(Duration::from_secs(1));
        assert_eq!(world.events, [Event::Bound(peer(n))]);
        world.events.clear();
    }
}

#[test]
fn a_peer_of_another_family_costs_one_new_allocation_and_its_coming_and_going_none() {
    for has in [Families::BOTH, Families::V4] {
        let mut world = World::ready();
        world.has = has;
        let both = [peer(1), peer_v6()];
        let ready = |world: &World| {
            let ready = |it: &&Event| matches!(it, Event::Ready(address) if address.is_ipv4());
            world.events.iter().filter(ready).count()
        };
        for _ in 0..10 {
            world.client.set_peers(&both, world.now).unwrap();
            world.run(Duration::from_secs(5));
            world.must_reach(peer(1));
            let reaches = world.client.channel(peer_v6()).is_some();
            assert_eq!(reaches, has.v6, "{:?}", world.events);
            world.client.set_peers(&[peer(1)], world.now).unwrap();
            world.run(Duration::from_secs(5));
            world.must_reach(peer(1));
        }
        assert_eq!(ready(&world), 1, "{:?}", world.events);
    }
}

#[test]
fn an_allocation_of_both_families_lasts_for_hours_and_is_given_back_by_one_message() {
    let mut world = asked_for_both(Families::BOTH);
    let nonces = Duration::from_secs(600);
    world.server.set_nonce_expiry_duration(nonces);
    world.run(4 * HOUR);
    world.must_reach(peer(1));
    world.must_reach(peer_v6());
    let sent = world.sent;
    world.client.set_peers(&[], world.now).unwrap();
    world.exchange();
    assert_eq!(world.sent - sent, 1);
    // If the server still had it, it would refuse another one at first.
    world.client.set_peers(&[peer_v6()], world.now).unwrap();
    world.run(Duration::from_millis(500));
    world.must_reach(peer_v6());
}
