//! When requests are sent.

use super::*;
use crate::{MAX_REQUESTS, MAX_REQUESTS_PER_MINUTE};

/// Times of the requests of a transaction that is not answered, in milliseconds.
const UNANSWERED: [u128; 7] = [0, 500, 1500, 3500, 7500, 15_500, 31_500];
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_silent_server_is_asked_seven_times_and_rests_for_a_minute() {
    let mut world = World::started(&[(server(1), Does::Lose)]);
    world.run(90 * SECOND);
    assert_eq!(world.times(), UNANSWERED);
    let transaction = |at: usize| world.sent[at].1.bytes;
    assert!((1..7).all(|at| transaction(at) == transaction(0)));
    let resumes = START + Duration::from_millis(39_500) + MINUTE;
    assert_eq!(world.client.poll_timeout(), Some(resumes));
    world.run(10 * SECOND);
    assert_eq!(world.times()[7..], [99_500, 100_000]);
    assert_ne!(world.sent[7].1.bytes, world.sent[0].1.bytes);
}

#[test]
fn a_lost_request_is_repeated_until_it_is_answered() {
    let mut world = World::started(&[(server(1), Does::Lose)]);
    world.run(SECOND);
    world.servers.insert(server(1), Does::Answer(mapped(1)));
    world.run(SECOND);
    assert_eq!(world.addresses(), [mapped(1)]);
    world.run(25 * SECOND);
    assert_eq!(world.times(), [0, 500, 1500, 21_500]);
}

#[test]
fn a_late_answer_counts_until_the_server_rests() {
    for (delay, is_answer) in [(39_499, true), (39_500, false)] {
        let mut world = World::started(&[(server(1), Does::Lose)]);
        world.run(Duration::from_millis(delay));
        let bytes = success(&world.sent[0].1.bytes, mapped(1));
        let handled = world.client.handle_datagram(server(1), &bytes, world.now);
        assert_eq!(handled, is_answer, "{delay}");
        assert_eq!(world.addresses().len(), usize::from(is_answer));
    }
}

#[test]
fn an_address_is_refreshed_every_twenty_seconds() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    world.run(60 * SECOND);
    assert_eq!(world.times(), [0, 20_000, 40_000, 60_000]);
}

#[test]
fn an_address_that_is_no_longer_confirmed_is_forgotten() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    world.client.take_changed();
    world.servers.insert(server(1), Does::Lose);
    world.run(59 * SECOND);
    assert_eq!(world.addresses(), [mapped(1)]);
    world.run(SECOND);
    assert_eq!(world.addresses(), []);
    assert!(world.client.take_changed());
}

#[test]
fn a_refusal_ends_the_transaction_and_the_server_rests() {
    let mut world = World::started(&[(server(1), Does::Refuse)]);
    world.run(60 * SECOND);
    assert_eq!(world.addresses(), []);
    assert_eq!(world.times(), [0, 60_000]);
}

#[test]
fn nothing_is_sent_before_the_start_and_after_the_stop() {
    let mut world = World::new(&[(server(1), Does::Answer(mapped(1)))]);
    assert_eq!(world.client.poll_timeout(), None);
    world.client.network_changed(START);
    world.run(100 * SECOND);
    assert_eq!(world.times(), []);
    world.client.start(world.now);
    world.exchange();
    assert_eq!(world.addresses(), [mapped(1)]);
    world.servers.insert(server(1), Does::Lose);
    world.run(20 * SECOND);
    world.client.take_changed();
    world.client.stop();
    assert!(world.client.take_changed());
    assert_eq!(world.addresses(), []);
    assert_eq!(world.client.poll_timeout(), None);
    let bytes = success(&world.sent[1].1.bytes, mapped(1));
    assert!(!world.client.handle_datagram(server(1), &bytes, world.now));
    world.run(100 * SECOND);
    world.client.set_servers(&[server(2)], world.now);
    world.exchange();
    assert_eq!(world.times(), [100_000, 120_000]);
}

#[test]
fn a_second_start_changes_nothing() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    world.now += 10 * SECOND;
    world.client.start(world.now);
    world.exchange();
    assert_eq!(world.times(), [0]);
    assert_eq!(world.addresses(), [mapped(1)]);
}

#[test]
fn another_network_is_asked_from_at_once_with_other_identifiers() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    world.now += 10 * SECOND;
    world.servers.insert(server(1), Does::Lose);
    world.client.network_changed(world.now);
    assert_eq!(world.addresses(), []);
    world.exchange();
    world.now += 10 * SECOND;
    world.client.network_changed(world.now);
    let former = success(&world.sent[1].1.bytes, mapped(1));
    assert!(!world.client.handle_datagram(server(1), &former, world.now));
    world.servers.insert(server(1), Does::Answer(mapped(2)));
    world.exchange();
    assert_eq!(world.times(), [0, 10_000, 20_000]);
    assert_eq!(world.addresses(), [mapped(2)]);
}

#[test]
fn a_server_that_rests_is_asked_at_once_from_another_network() {
    let mut world = World::started(&[(server(1), Does::Refuse)]);
    world.run(SECOND);
    world.client.network_changed(world.now);
    world.exchange();
    assert_eq!(world.times(), [0, 1000]);
}

#[test]
fn without_randomness_nothing_is_asked_and_it_is_drawn_again_later() {
    let mut client = Client::new();
    client.set_servers(&[server(1)], START);
    client.start(START);
    assert_eq!(client.poll_transmit(|| None, START), None);
    let later = START + Duration::from_millis(500);
    assert_eq!(client.poll_timeout(), Some(later));
    let early = client.poll_transmit(|| Some([7; 12]), later - MILLISECOND);
    assert_eq!(early, None);
    assert!(client.poll_transmit(|| Some([7; 12]), later).is_some());
}

#[test]
fn a_request_under_way_is_not_hurried_by_a_mapping_that_changes_elsewhere() {
    let mut world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server(2), Does::Answer(mapped(1))),
    ]);
    world.servers.clear();
    world.run(22 * SECOND);
    let late = success(&world.sent[2].1.bytes, mapped(2));
    assert!(world.client.handle_datagram(server(1), &late, world.now));
    world.run(2 * SECOND);
    assert_eq!(
        world.times()[2..8],
        [20_000, 20_000, 20_500, 20_500, 21_500, 21_500]
    );
    assert_eq!(world.times()[8..], [23_500]);
}

#[test]
fn a_machine_that_slept_sends_one_request_per_server() {
    let mut world = World::started(&[(server(1), Does::Lose), (server(2), Does::Lose)]);
    world.now += 20 * SECOND;
    world.client.handle_timeout(world.now);
    world.exchange();
    assert_eq!(world.times(), [0, 0, 20_000, 20_000]);
}

#[test]
fn no_minute_has_more_than_fourteen_requests_to_a_server_whatever_is_lost() {
    let mut most = 0;
    let patience = || 1..=MAX_REQUESTS;
    for first in patience() {
        for second in patience() {
            for third in patience() {
                let answered_after = [first, second, third].repeat(2);
                most = most.max(busiest_minute(&answered_after));
            }
        }
    }
    assert_eq!(most, 14);
    assert!(most * MAX_SERVERS <= MAX_REQUESTS_PER_MINUTE);
}

/// Counts the requests in the busiest minute; each entry is the number of requests until the server answers.
fn busiest_minute(answered_after: &[u32]) -> usize {
    let mut world = World::new(&[(server(1), Does::Lose)]);
    world.client.start(START);
    for requests in answered_after {
        for _ in 1..*requests {
            world.now = world.client.poll_timeout().unwrap();
            world.poll().unwrap();
        }
        world.now = world.client.poll_timeout().unwrap();
        let transmit = world.poll().unwrap();
        let bytes = success(&transmit.bytes, mapped(1));
        let is_answer = world.client.handle_datagram(server(1), &bytes, world.now);
        assert!(is_answer);
    }
    busiest(&world)
}

fn busiest(world: &World) -> usize {
    let times = world.sent.iter().map(|(at, _)| *at);
    let within = |from| {
        times
            .clone()
            .filter(move |at| (from..from + MINUTE).contains(at))
    };
    times
        .clone()
        .map(|at| within(at).count())
        .max()
        .unwrap_or(0)
}

#[test]
fn no_minute_has_more_requests_than_the_bound_whatever_the_caller_does() {
    let mut world = World::started(&[1, 2, 3, 4].map(|n| (server(n), Does::Lose)));
    for step in 0..3000 {
        world.now += 100 * MILLISECOND;
        match step % 3 {
            0 => world.client.network_changed(world.now),
            1 => world.client.set_servers(&[1, 2].map(server), world.now),
            _ => world
                .client
                .set_servers(&[1, 2, 3, 4].map(server), world.now),
        }
        world.exchange();
        assert!(world.client.poll_timeout().unwrap() > world.now);
    }
    assert_eq!(busiest(&world), MAX_REQUESTS_PER_MINUTE);
}

#[test]
fn servers_share_the_requests_of_a_minute() {
    let mut world = World::started(&[1, 2, 3].map(|n| (server(n), Does::Lose)));
    for step in 0..6000 {
        world.now += 100 * MILLISECOND;
        world.client.network_changed(world.now);
        if step % 7 == 0 {
            world.poll();
        }
    }
    let to = |n| world.sent.iter().filter(move |(_, it)| it.to == server(n));
    assert_eq!([1, 2, 3].map(|n| to(n).count()), [214, 213, 213]);
}

#[test]
fn a_network_that_flaps_makes_two_requests_a_second_per_server() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    for _ in 0..100 {
        world.now += 20 * MILLISECOND;
        world.client.network_changed(world.now);
        world.exchange();
    }
    assert_eq!(world.times(), [0, 500, 1000, 1500, 2000]);
}
