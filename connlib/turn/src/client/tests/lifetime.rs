//! How allocations are kept, lost, and made again.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn an_idle_allocation_lasts_for_hours_and_wakes_only_to_be_refreshed() {
    let mut world = World::ready();
    let channel = world.client.channel(peer(1));
    let sent = world.sent;
    world.run(4 * HOUR);
    assert_eq!(world.events, []);
    assert_eq!(world.client.channel(peer(1)), channel);
    // A permission lasts five minutes, an allocation half an hour.
    let refreshes = world.sent - sent;
    assert!(
        (60..160).contains(&refreshes),
        "{refreshes} messages in four hours"
    );
    world.send(peer(1), b"after hours");
    assert_eq!(world.at_peers.last().unwrap().1, b"after hours");
}

#[test]
fn a_stale_nonce_costs_a_round_trip_and_no_outage() {
    let mut world = World::new();
    world
        .server
        .set_nonce_expiry_duration(Duration::from_secs(30));
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(HOUR);
    let failures = world
        .events
        .iter()
        .filter(|it| matches!(it, Event::Failed(_)));
    assert_eq!(failures.count(), 0, "{:?}", world.events);
    assert!(world.client.channel(peer(1)).is_some());
}

#[test]
fn wrong_credentials_are_named_and_tried_ever_more_rarely() {
    let mut world = World::new();
    world.client = Client::new(world.client.server(), credentials("wrong"));
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.client.phase(), Phase::Paused(Failure::Credentials));
    let sent = world.sent;
    world.run(HOUR);
    assert!(
        world.sent - sent < 200,
        "{} messages in an hour",
        world.sent - sent
    );
    assert!(
        world
            .events
            .iter()
            .all(|it| *it == Event::Failed(Failure::Credentials))
    );
}

#[test]
fn a_server_without_addresses_is_named() {
    let mut world = World::new();
    world.refuses = Some(SocketAllocateError::InsufficientCapacity);
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.client.phase(), Phase::Paused(Failure::Quota));
    world.refuses = None;
    world.run(Duration::from_secs(5));
    assert!(world.client.channel(peer(1)).is_some());
}

#[test]
fn a_dead_server_is_asked_ever_more_rarely() {
    let mut world = World::new();
    world.fate = |_| Fate::Lost;
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(HOUR);
    assert!(world.sent < 400, "{} messages in an hour", world.sent);
    assert!(
        world.events.contains(&Event::Failed(Failure::Silent)),
        "{:?}",
        world.events
    );
    world.fate = |_| Fate::Arrives;
    world.run(LONGEST_PAUSE + Duration::from_secs(15));
    assert!(world.client.channel(peer(1)).is_some());
}

#[test]
fn a_restarted_server_is_asked_again_soon_after_data_gets_no_answer() {
    let mut world = World::ready();
    world.restart_server();
    for _ in 0..6 {
        world.send(peer(1), b"into the void");
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.events.first(), Some(&Event::Failed(Failure::Lost)));
    world.must_reach(peer(1));
}

#[test]
fn a_server_that_dies_is_noticed_within_ten_seconds_while_data_flows() {
    let mut world = World::ready();
    for _ in 0..60 {
        world.send(peer(1), b"answered");
        world.client.note_received();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.events, []);
    world.fate = |_| Fate::Lost;
    for _ in 0..10 {
        world.send(peer(1), b"into the void");
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.client.phase(), Phase::Paused(Failure::Silent));
    // It comes back with the allocation that it had.
    world.fate = |_| Fate::Arrives;
    world.run(Duration::from_secs(15));
    world.must_reach(peer(1));
}

#[test]
fn a_server_that_answers_where_a_fifth_is_lost_each_way_is_not_taken_for_dead() {
    let mut world = World::ready();
    // 36 % of all requests, as if their answers had been lost as well.
    world.fate = |n| {
        let mixed = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        match (mixed >> 33) % 100 < 36 {
            true => Fate::Lost,
            false => Fate::Arrives,
        }
    };
    let before = world.sent;
    for _ in 0..500 {
        world.send(peer(1), b"answered late");
        world.run(Duration::from_secs(10));
        world.client.note_received();
    }
    assert!(world.sent - before > 1000, "each silence was looked into");
    let silent = world.events.contains(&Event::Failed(Failure::Silent));
    assert!(!silent, "{:?}", world.events);
}

#[test]
fn a_silent_peer_costs_a_request_ever_more_rarely_and_no_allocation() {
    let mut world = World::ready();
    let sent = world.sent;
    for _ in 0..3600 {
        world.send(peer(1), b"nobody answers");
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.events, []);
    let requests = world.sent - sent;
    assert!((20..100).contains(&requests), "{requests} in an hour");
}

#[test]
fn a_server_that_fails_once_an_hour_is_asked_again_at_once_each_time() {
    let mut world = World::ready();
    for nth in 0..8 {
        world.run(HOUR);
        world.client.handle_closed(world.now);
        let due = world.client.poll_timeout().unwrap();
        assert_eq!(due - world.now, FIRST_PAUSE, "{nth}");
        world.run(Duration::from_secs(10));
        world.must_reach(peer(1));
    }
}

#[test]
fn a_restarted_server_is_noticed_without_data_at_the_next_refresh() {
    let mut world = World::ready();
    world.restart_server();
    world.run(Duration::from_secs(1200));
    world.must_reach(peer(1));
}

#[test]
fn an_allocation_that_lapsed_in_a_suspend_is_made_again_at_once() {
    let mut world = World::ready();
    world.now += 2 * HOUR;
    world.client.handle_timeout(world.now);
    world.run(Duration::from_secs(10));
    world.must_reach(peer(1));
}

#[test]
fn an_allocation_that_a_killed_process_has_left_is_released_first() {
    let mut world = World::ready();
    // The same address and port, and no memory.
    world.client = Client::new(world.client.server(), credentials("secret"));
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_secs(10));
    world.must_reach(peer(1));
}

#[test]
fn an_end_gives_the_allocation_back_however_old_it_is() {
    let mut world = World::ready();
    let nonces = Duration::from_secs(600);
    world.server.set_nonce_expiry_duration(nonces);
    world.run(HOUR);
    world.client.end(world.now);
    world.exchange();
    assert_eq!(
        (world.client.phase(), world.client.poll_timeout()),
        (Phase::Ended, None)
    );
    // If the server still had it, it would refuse another one at first.
    world.client = Client::new(world.client.server(), credentials("secret"));
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    world.run(Duration::from_millis(500));
    world.must_reach(peer(1));
}

#[test]
fn a_stream_is_opened_first_and_again_after_it_has_broken() {
    let mut world = World::new();
    let server = Server {
        transport: Transport::Stream,
        ..world.client.server()
    };
    world.client = Client::new(server, credentials("secret"));
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    assert_eq!(world.client.poll_event(), Some(Event::Connect));
    assert_eq!(world.client.poll_transmit(), None);
    world.client.handle_connected(world.now);
    let request = world.client.poll_transmit().unwrap();
    assert_eq!(crate::frame_len(&request), Ok(Some(request.len())));
    world.client.handle_closed(world.now);
    assert_eq!(world.client.poll_event(), Some(Event::Close));
    assert_eq!(
        world.client.poll_event(),
        Some(Event::Failed(Failure::Connection))
    );
    let due = world.client.poll_timeout().unwrap();
    assert_eq!(due, world.now + FIRST_PAUSE);
    world.client.handle_timeout(due);
    assert_eq!(world.client.poll_event(), Some(Event::Connect));
    // Nobody answers.
    let due = world.client.poll_timeout().unwrap();
    world.client.handle_timeout(due);
    assert_eq!(world.client.phase(), Phase::Paused(Failure::Silent));
}
