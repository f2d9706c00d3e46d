//! Datagrams of the second hop that the way to the first one cuts.

use std::time::Duration;

use convoy_proto::counters::DropReason;

use crate::{
    common::SECOND,
    world::{World, cut, udp},
};

#[test]
fn datagrams_that_were_cut_arrive_in_order_among_others() {
    for is_ipv4 in [true, false] {
        let mut world = World::connected(is_ipv4);
        world.cut = 600;
        let payloads: Vec<_> = (0..40u8)
            .map(|n| vec![n; if n % 3 == 0 { 40 } else { 1300 }])
            .collect();
        payloads.iter().for_each(|it| world.second_sends(it));
        world.settle();
        assert_eq!(world.arrived().1, payloads);
        assert_eq!(world.hop_drops(DropReason::InboundViaFragment), 0);
    }
}

#[test]
fn the_session_begins_and_goes_on_over_a_way_that_cuts_everything() {
    for is_ipv4 in [true, false] {
        let mut world = World::new(is_ipv4);
        world.cut = 64;
        for n in 0..30 {
            world.client_sends(&[n; 200]);
            world.second_sends(&[n; 300]);
            world.pass(10 * SECOND);
        }
        let (there, back) = world.arrived();
        assert_eq!(
            (there.len(), back.len()),
            (30, 29),
            "it has no endpoint at first"
        );
    }
}

#[test]
fn a_full_writer_holds_up_what_comes_behind_a_datagram_that_was_cut() {
    let mut world = World::connected(true);
    world.cut = 600;
    let payloads: Vec<_> = (0..20u8)
        .map(|n| vec![n; if n % 2 == 0 { 40 } else { 1300 }])
        .collect();
    payloads.iter().for_each(|it| world.second_sends(it));
    for slots in 1..=20 {
        world.client.slots = 1;
        world.carry();
        assert_eq!(world.client.delivered.len(), slots);
        assert_eq!(world.hop.is_drained(), slots == 20);
    }
    assert_eq!(world.arrived().1, payloads);
}

#[test]
fn a_fragment_that_stays_alone_is_given_up_without_further_wake_ups() {
    let mut world = World::connected(true);
    let second = world.second_address;
    let own = [10, 9, 0, 1].into();
    let packet = udp(second.ip(), second.port(), own, 50_000, &[4; 1000]);
    let idle = world.hop.poll_timeout();
    let parts = cut(packet, 600, 7);
    world.first.send(&parts[0], world.now);
    world.settle();
    let due = world.hop.poll_timeout().expect("an expiry");
    assert_eq!(due, world.now + 3 * SECOND);
    world.now = due - Duration::from_millis(1);
    assert!(!world.hop.handle_timeout(world.now));
    world.now = due;
    assert!(world.hop.handle_timeout(due));
    assert_eq!(world.hop_drops(DropReason::InboundViaIncomplete), 1);
    assert!(world.hop.poll_timeout().is_none_or(|next| next > due));
    assert!(idle.is_none_or(|idle| idle > due));
    // The other one comes too late.
    world.first.send(&parts[1], world.now);
    world.settle();
    assert_eq!(world.client.drops(DropReason::InboundBadTag), 0);
    assert_eq!(world.client.drops(DropReason::InboundUnknownSession), 0);
}

#[test]
fn strangers_have_no_room_for_fragments() {
    let mut world = World::connected(true);
    let own = [10, 9, 0, 1].into();
    for stranger in [[192, 0, 2, 4], [192, 0, 2, 2]] {
        let packet = udp(stranger.into(), 51_820, own, 50_000, &[4; 1000]);
        for part in cut(packet, 600, 7) {
            world.first.send(&part, world.now);
        }
    }
    world.settle();
    assert_eq!(world.hop_drops(DropReason::InboundViaForeign), 4);
    let now = world.now;
    world.client.node.set_link(false, now);
    world.hop.set_link(false, now);
    assert_eq!(
        world.hop_drops(DropReason::InboundLinkDown),
        0,
        "nothing was kept"
    );
}

#[test]
fn a_link_that_goes_down_drops_fragments() {
    let mut world = World::connected(true);
    let second = world.second_address;
    let own = [10, 9, 0, 1].into();
    let packet = udp(second.ip(), second.port(), own, 50_000, &[4; 1000]);
    world.first.send(&cut(packet, 600, 7)[0], world.now);
    world.settle();
    let now = world.now;
    world.client.node.set_link(false, now);
    world.hop.set_link(false, now);
    assert_eq!(world.hop_drops(DropReason::InboundLinkDown), 1);
    assert_eq!(world.hop_drops(DropReason::InboundViaIncomplete), 0);
}
