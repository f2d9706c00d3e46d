//! Servers at the end of a stream that take it and then do not help.

use super::*;

/// Longest time that one request may take over a stream (RFC 8489 §6.2.2), with a wake-up to spare.
const LONGEST_WAIT: Duration = Duration::from_secs(41);

#[test]
fn a_server_that_takes_a_stream_and_stays_silent_is_given_up() {
    let mut world = by_stream();
    world.fate = |_| Fate::Lost;
    is_given_up(&mut world);
    let ends = [Event::Close, Event::Failed(Failure::Silent)];
    assert_eq!(world.events[world.events.len() - 2..], ends);
}

#[test]
fn a_server_that_falls_silent_after_its_first_answer_is_given_up() {
    let mut world = by_stream();
    world.fate = |n| match n {
        1 => Fate::Arrives,
        _ => Fate::Lost,
    };
    is_given_up(&mut world);
    // It has asked again with the password, in vain.
    assert!(world.sent > 1, "{}", world.sent);
}

/// Lets time pass until the client closes the stream.
fn is_given_up(world: &mut World) {
    let deadline = world.now + LONGEST_WAIT;
    while world.client.phase() != Phase::Paused(Failure::Silent) {
        assert!(world.now < deadline, "{:?}", world.client.phase());
        world.run(Duration::from_millis(500));
    }
}

/// A client whose stream is open.
fn by_stream() -> World {
    let mut world = World::new();
    let server = Server {
        transport: Transport::Stream,
        ..world.client.server()
    };
    world.client = Client::new(server, credentials("secret"));
    world.client.set_peers(&[peer(1)], world.now).unwrap();
    assert_eq!(world.client.poll_event(), Some(Event::Connect));
    world.client.handle_connected(world.now);
    world
}
