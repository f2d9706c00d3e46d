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
    // A permission lasts five minutes, a channel ten, an allocation half an hour.
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
fn a_restarted_server_is_noticed_by_its_silence_while_data_flows() {
    let mut world = World::ready();
    world.restart_server();
    for _ in 0..30 {
        world.send(peer(1), b"into the void");
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.events.first(), Some(&Event::Failed(Failure::Silent)));
    world.must_reach(peer(1));
}

#[test]
fn a_silent_peer_costs_an_allocation_ever_more_rarely() {
    let mut world = World::ready();
    for _ in 0..3600 {
        world.send(peer(1), b"nobody answers");
        world.run(Duration::from_secs(1));
    }
    let again = world
        .events
        .iter()
        .filter(|it| matches!(it, Event::Ready(_)))
        .count();
    assert!((3..20).contains(&again), "{again} allocations in an hour");
    let answered = world.events.len();
    for _ in 0..60 {
        world.send(peer(1), b"answered");
        world.client.note_received();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.events.len(), answered);
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
fn an_end_gives_the_allocation_back() {
    let mut world = World::ready();
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
