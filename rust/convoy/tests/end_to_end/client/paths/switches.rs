//! Numbers lost and overtaken when data moves from one path to another, and when the hub moves.
//!
//! `cargo test -p convoy --test end_to_end client::paths -- --include-ignored --nocapture` prints them.

use convoy_lab::eventually;

use super::{HOME, conversation::Conversation, friend::Friend, friends::Friends, numbers::Numbers};
use crate::scene::DEADLINE;

/// Numbers that are sent in a minute.
const MINUTE: u32 = 12_000;

#[test]
fn a_hub_that_moves_costs_the_data_it_carries_only_what_was_sent_meanwhile() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    let [a, b] = &friends.all;
    for friend in [a, b] {
        friends.configure(friend, "", "");
    }
    friends.up();
    [a, b].into_iter().for_each(Friend::reaches_hub);
    let (conversation, numbers) = (Conversation::start(a, b), Numbers::start(a, b));
    numbers.go_on();
    let before = numbers.mark();
    see_move(&friends);
    let after = numbers.mark();
    numbers.go_on();
    conversation.goes_on();
    conversation.ends_well();
    let tallies = numbers.end("the hub moves, data by the hub");
    tallies
        .lose_only_between(before, after)
        .keep_order_on_each_path();
}

#[test]
fn a_hub_that_moves_disturbs_no_direct_path() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    let [a, b] = &friends.all;
    friends.up();
    friends.meet_by("host", "host");
    let (conversation, numbers) = (Conversation::start(a, b), Numbers::start(a, b));
    numbers.go_on();
    see_move(&friends);
    [a, b].into_iter().for_each(Friend::reaches_hub);
    numbers.go_on();
    conversation.goes_on();
    conversation.ends_well();
    let tallies = numbers.end("the hub moves, data direct");
    tallies.lose_nothing().keep_order_on_each_path();
    assert_eq!(a.path(b).map(|(kind, _)| kind), Ok("host".to_owned()));
    friends.talk_directly();
}

#[test]
fn a_friend_who_wants_no_path_any_longer_takes_data_back_to_the_hub() {
    let Some(friends) = Friends::apart([Some(HOME), None]) else {
        return;
    };
    let [a, b] = &friends.all;
    friends.up();
    friends.meet_by("host", "learnt");
    let (conversation, numbers) = (Conversation::start(a, b), Numbers::start(a, b));
    numbers.go_on();
    let before = numbers.mark();
    friends.configure(a, "", "");
    a.convoy(&["reload", "wg0"]).succeeds();
    let is_back = || b.path(a).is_err().then_some(());
    assert!(eventually(DEADLINE, is_back).is_some());
    let after = numbers.mark();
    numbers.go_on();
    conversation.goes_on();
    conversation.ends_well();
    let tallies = numbers.end("direct to hub, by reload");
    tallies
        .lose_only_between(before, after)
        .keep_order_on_each_path();
}

#[test]
#[ignore = "make interop"]
fn a_path_that_is_cut_after_a_minute_costs_what_was_sent_until_that_is_noticed() {
    let Some(friends) = Friends::apart([Some(HOME), None]) else {
        return;
    };
    let [a, b] = &friends.all;
    friends.up();
    friends.meet_by("host", "learnt");
    let (conversation, numbers) = (Conversation::start(a, b), Numbers::start(a, b));
    numbers.reach(MINUTE);
    let before = numbers.mark();
    friends.homes[0].cut(b.outside.v4.into());
    let are_back = || (a.path(b).is_err() && b.path(a).is_err()).then_some(());
    let found = eventually(3 * DEADLINE, are_back);
    assert!(found.is_some(), "{:?} {:?}", a.path(b), b.path(a));
    let after = numbers.mark();
    numbers.go_on();
    conversation.goes_on();
    conversation.ends_well();
    let tallies = numbers.end("direct to hub, UDP cut after a minute");
    tallies
        .lose_only_between(before, after)
        .keep_order_on_each_path();
}

#[test]
#[ignore = "make interop"]
fn a_direct_path_takes_over_from_a_relay_and_loses_nothing() {
    let Some(mut friends) = Friends::apart([Some(HOME), Some(HOME)]) else {
        return;
    };
    let server = friends.use_turn(&[0], "");
    let other = friends.homes[1].outside.unwrap().v4;
    friends.homes[0].cut(other.into());
    friends.up();
    friends.meet_by("relayed", "relayed").lose_nothing();
    let [a, b] = &friends.all;
    let (conversation, numbers) = (Conversation::start(a, b), Numbers::start(a, b));
    numbers.go_on();
    friends.homes[0].mend();
    let is_direct = |path: Result<(String, String), String>| {
        path.is_ok_and(|(kind, _)| kind == "reflexive" || kind == "learnt")
    };
    let are_direct = || (is_direct(a.path(b)) && is_direct(b.path(a))).then_some(());
    let found = eventually(12 * DEADLINE, are_direct);
    assert!(found.is_some(), "{:?} {:?}", a.path(b), b.path(a));
    numbers.go_on();
    conversation.goes_on();
    conversation.ends_well();
    let tallies = numbers.end("relay to direct");
    tallies.lose_nothing().keep_order_on_each_path();
    let before = server.relayed();
    friends.talk_directly();
    let relayed = server.relayed() - before;
    let paths = [a.path(b), b.path(a)];
    assert!(relayed < 10, "{relayed} still relayed: {paths:?}");
}

/// Moves the hub, and waits until both friends know where it is. A NAT would keep that from them.
fn see_move(friends: &Friends) {
    let moved = friends.move_hub().to_string();
    for friend in &friends.all {
        let is_seen = || (friend.hub_endpoint() == moved).then_some(());
        let found = eventually(DEADLINE, is_seen);
        assert!(found.is_some(), "{}", friend.hub_endpoint());
    }
}
