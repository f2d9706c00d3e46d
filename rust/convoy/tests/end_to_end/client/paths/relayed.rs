//! Friends whose routers let no direct path through meet by a TURN server.

use convoy_lab::{eventually, require_programs};

use super::{HARD, HOME, friends::Friends, numbers::Numbers};
use crate::scene::DEADLINE;

#[test]
fn two_hard_nats_meet_by_the_relay_that_one_has_and_the_status_says_so() {
    let Some(mut friends) = Friends::apart([Some(HARD), Some(HARD)]) else {
        return;
    };
    let server = friends.use_turn(&[0], "");
    let events = friends.all[1].follow_events();
    friends.up();
    friends.meet_by("relayed", "relayed");
    friends.talk_directly();
    assert!(server.relayed() > 0);
    let is_told = || {
        let said = events.said();
        said.contains("10.8.0.2 is reached by a relay")
            .then_some(())
    };
    assert!(eventually(DEADLINE, is_told).is_some(), "{}", events.said());
    for friend in &friends.all {
        let text = friend.convoy(&["status", "wg0"]).succeeds().stdout;
        assert!(text.contains(": by a relay, at "), "{text}");
    }
    for friend in &friends.all {
        friend.convoy(&["down", "wg0"]).succeeds();
    }
}

#[test]
fn a_closed_kill_switch_lets_friends_meet_by_a_relay() {
    let Some(mut friends) = Friends::apart([Some(HARD), Some(HARD)]) else {
        return;
    };
    let _server = friends.use_turn(&[0, 1], "#convoy: KillSwitch = on");
    friends.up();
    friends.meet_by("relayed", "relayed");
    friends.talk_directly();
}

#[test]
fn a_home_and_a_hard_nat_meet_by_a_relay() {
    let Some(mut friends) = Friends::apart([Some(HOME), Some(HARD)]) else {
        return;
    };
    let server = friends.use_turn(&[1], "");
    friends.up();
    friends.meet_by("relayed", "relayed").lose_nothing();
    friends.talk_directly();
    assert!(server.relayed() > 0);
}

#[test]
#[ignore = "make interop"]
fn friends_meet_by_coturn() {
    if !require_programs("friends_meet_by_coturn", &["turnserver"]) {
        return;
    }
    let Some(mut friends) = Friends::apart([Some(HARD), Some(HARD)]) else {
        return;
    };
    friends.relay_by_coturn(&[1]);
    friends.up();
    friends.meet_by("relayed", "relayed");
    friends.talk_directly();
}

#[test]
#[ignore = "make interop"]
fn a_relay_that_is_gone_leaves_data_at_the_hub() {
    let Some(mut friends) = Friends::apart([Some(HARD), Some(HARD)]) else {
        return;
    };
    let server = friends.use_turn(&[0], "");
    friends.up();
    friends.meet_by("relayed", "relayed");
    drop(server);
    let [a, b] = &friends.all;
    let ping = a.start_ping(b);
    let are_at_hub = || (a.path(b).is_err() && b.path(a).is_err()).then_some(());
    let found = eventually(4 * DEADLINE, are_at_hub);
    assert!(found.is_some(), "{:?} {:?}", a.path(b), b.path(a));
    drop(ping);
    a.reaches(b);
    b.reaches(a);
}

#[test]
#[ignore = "make interop"]
fn coturn_that_is_killed_leaves_data_at_the_hub() {
    // The kernel answers that its ports are closed.
    coturn_ends("coturn is killed", |friends| {
        let server = &mut friends.servers[0];
        server.kill().unwrap();
        server.wait().unwrap();
    });
}

#[test]
#[ignore = "make interop"]
fn coturn_that_falls_silent_leaves_data_at_the_hub() {
    coturn_ends("coturn falls silent", |friends| {
        let server = friends.stun_at.unwrap();
        friends.internet.cut(server.ip()).unwrap();
    });
}

/// Friends who talk by coturn go on by the hub once it has ended.
fn coturn_ends(what: &str, end: impl FnOnce(&mut Friends)) {
    if !require_programs(what, &["turnserver"]) {
        return;
    }
    let Some(mut friends) = Friends::apart([Some(HARD), Some(HARD)]) else {
        return;
    };
    friends.relay_by_coturn(&[1]);
    friends.up();
    friends.meet_by("relayed", "relayed").lose_nothing();
    let [a, b] = &friends.all;
    let numbers = Numbers::start(a, b);
    numbers.go_on();
    let before = numbers.mark();
    end(&mut friends);
    let [a, b] = &friends.all;
    let are_at_hub = || (a.path(b).is_err() && b.path(a).is_err()).then_some(());
    let found = eventually(4 * DEADLINE, are_at_hub);
    assert!(found.is_some(), "{:?} {:?}", a.path(b), b.path(a));
    let after = numbers.mark();
    numbers.go_on();
    numbers.end(what).lose_only_between(before, after);
    b.reaches(a);
}
