//! Packets sent while data moves from one path to another: one each millisecond, of which the hub's path carries 20 and
//! the direct one 10.

use std::time::Duration;

use super::world::{A, B, HUB, World};
use crate::common::SECOND;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Sends a number each millisecond until `is_over`, which gets the count so far, then lets the last ones arrive. Returns
/// the count and the numbers delivered, in their order of arrival.
fn number(
    world: &mut World,
    [from, to]: [usize; 2],
    mut is_over: impl FnMut(&mut World, u32) -> bool,
) -> (u32, Vec<u32>) {
    world.delivered(to);
    let mut sent = 0_u32;
    while !is_over(world, sent) {
        world.send(from, to, &sent.to_be_bytes());
        sent += 1;
        world.pass(MILLISECOND);
    }
    world.pass(SECOND);
    let numbers = world.delivered(to).into_iter();
    let numbers = numbers.map(|it| u32::from_be_bytes(it.try_into().unwrap()));
    (sent, numbers.collect())
}

#[test]
fn the_direct_path_loses_nothing_and_overtakes_only_what_the_hub_still_carries() {
    let mut world = World::new(&[A, B]);
    let mut first = None;
    let (sent, arrived) = number(&mut world, [A, B], |world, sent| {
        if world.status(A).path.is_ok() {
            first.get_or_insert(sent);
        }
        first.is_some_and(|first| sent == first + 100)
    });
    let first = first.unwrap();
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..sent), "lost or doubled");
    let (new, former): (Vec<u32>, Vec<u32>) = arrived.iter().partition(|it| **it >= first);
    assert!(new.is_sorted() && former.is_sorted(), "{arrived:?}");
    let at = arrived.iter().position(|it| *it == first).unwrap();
    let overtaken = arrived[at..].iter().filter(|it| **it < first).count();
    println!("hub to direct: {sent} sent, 0 lost, {overtaken} overtaken");
    assert!((1..=10).contains(&overtaken), "{overtaken}");
}

#[test]
fn a_peer_that_leaves_costs_only_what_is_under_way_to_it() {
    for leaves in [A, B] {
        let mut world = World::new(&[A, B]);
        world.talk(A, B, 2 * SECOND);
        world.status(A).path.unwrap();
        let (sent, arrived) = number(&mut world, [A, B], |world, sent| {
            if sent == 100 {
                world.set_directs(leaves, &[], None);
            }
            sent == 300
        });
        assert!(arrived.is_sorted(), "{arrived:?}");
        let lost = sent as usize - arrived.len();
        println!("direct to hub: {sent} sent, {lost} lost, 0 overtaken");
        // Its word that it leaves takes as long as a datagram that is under way.
        assert!(lost <= if leaves == A { 10 } else { 20 }, "{lost}");
    }
}

#[test]
fn a_hub_that_moves_loses_what_it_carries_and_disturbs_no_direct_path() {
    for is_direct in [false, true] {
        let mut world = World::new(if is_direct { &[A, B] } else { &[] });
        world.talk(A, B, 2 * SECOND);
        let (sent, arrived) = number(&mut world, [A, B], |world, sent| {
            if sent == 100 {
                world.hosts[HUB].address = ([192, 0, 2, 99], 51_999).into();
                for client in [A, B] {
                    world.send(HUB, client, b"from here, now");
                }
            }
            // To a client that talks directly, the hub says so among the numbers.
            world.hosts[B].delivered.retain(|it| it[15] != 9);
            sent == 300
        });
        assert!(arrived.is_sorted(), "{arrived:?}");
        let lost = sent as usize - arrived.len();
        println!("the hub moves, direct: {is_direct}: {sent} sent, {lost} lost, 0 overtaken");
        // 10 ms each for the packets under way to the hub, and until A hears of it.
        assert!(lost <= if is_direct { 0 } else { 20 }, "{lost}");
    }
}

#[test]
fn a_wall_clock_set_back_and_forth_disturbs_neither_path_nor_meeting() {
    let mut world = World::new(&[A, B]);
    let year = Duration::from_secs(365 * 86_400);
    world.talk(A, B, 2 * SECOND);
    let path = world.status(A).path.unwrap().remote;
    for boot in [50 * year, 49 * year, 51 * year, 50 * year] {
        world.hosts[A].node.set_wall_clock(boot);
        // The session is renewed meanwhile.
        assert_eq!(world.talk(A, B, 150 * SECOND), 1_500);
        assert_eq!(world.status(A).path.unwrap().remote, path);
        assert!(world.status(A).last_handshake.unwrap() < 130 * SECOND);
    }
    world.pass(400 * SECOND);
    world.status(A).path.unwrap_err();
    world.hosts[A].node.set_wall_clock(year);
    assert_eq!(world.talk(A, B, 2 * SECOND), 20);
    assert_eq!(world.talk(B, A, SECOND), 10);
    world.status(A).path.unwrap();
    world.status(B).path.unwrap();
}
