//! Channels: their numbers, and how they are kept.

use super::*;
use crate::bindings::MAX_CHANNELS;

#[test]
fn a_peer_that_comes_back_gets_its_channel_again_and_no_other_peer_does() {
    let mut world = World::ready();
    let first = world.client.channel(peer(1)).unwrap();
    for n in 0..40 {
        let others = [peer(2 + n % 20)];
        world.client.set_peers(&others, world.now).unwrap();
        world.run(Duration::from_secs(10));
        world.must_reach(others[0]);
        assert_ne!(world.client.channel(others[0]), Some(first));
    }
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_secs(1));
    world.must_reach(peer(1));
    assert_eq!(world.client.channel(peer(1)), Some(first));
}

#[test]
fn the_numbers_of_former_peers_serve_others_in_the_end() {
    let mut world = World::ready();
    let many = |n: usize| SocketAddr::from(([198, 18, (n >> 8) as u8, n as u8], 9));
    for n in 0..2 * MAX_CHANNELS {
        let peers = [peer(1), many(n)];
        world.client.set_peers(&peers, world.now).unwrap();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.bound.len(), MAX_CHANNELS);
    world.must_reach(peer(1));
    world.run(Duration::from_secs(900));
    world.client.set_peers(&[peer(2)], world.now).unwrap();
    world.run(Duration::from_secs(1));
    world.must_reach(peer(2));
}

#[test]
fn a_channel_outlives_a_server_that_is_silent_for_minutes_while_nothing_is_sent() {
    let mut world = World::ready();
    world.run(Duration::from_secs(230));
    world.fate = |_| Fate::Lost;
    world.run(Duration::from_secs(300));
    world.fate = |_| Fate::Arrives;
    world.run(Duration::from_secs(20));
    assert_eq!(world.events, []);
    world.must_reach(peer(1));
}

#[test]
fn a_refused_peer_is_named_and_asked_for_again_later() {
    let mut world = World::ready();
    // A peer of the other family, for which the server has no address by then.
    world.has = Families::V4;
    let peers = [peer(1), peer_v6()];
    world.client.set_peers(&peers, world.now).unwrap();
    world.run(Duration::from_secs(5));
    assert!(world.events.contains(&Event::Failed(Failure::Family)));
    world.must_reach(peer(1));
}
