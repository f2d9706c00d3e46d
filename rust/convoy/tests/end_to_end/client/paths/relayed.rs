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
fn friends_without_ipv4_meet_by_a_relay_where_firewalls_keep_them_apart() {
    for owners in [&[0][..], &[0, 1]] {
        let Some(mut friends) = Friends::kept_apart_without_ipv4() else {
            return;
        };
        let server = friends.use_turn(owners, "");
        friends.up();
        friends.meet_by("relayed", "relayed").lose_nothing();
        must_lead_over(&friends, true);
        friends.talk_directly();
        assert!(server.relayed() > 0);
    }
}

#[test]
#[ignore = "make interop"]
fn friends_without_ipv4_meet_by_coturn_where_firewalls_keep_them_apart() {
    let test = "friends_without_ipv4_meet_by_coturn_where_firewalls_keep_them_apart";
    if !require_programs(test, &["turnserver"]) {
        return;
    }
    for owners in [&[0][..], &[0, 1]] {
        let Some(mut friends) = Friends::kept_apart_without_ipv4() else {
            return;
        };
        friends.relay_by_coturn(owners);
        friends.up();
        friends.meet_by("relayed", "relayed").lose_nothing();
        must_lead_over(&friends, true);
        friends.talk_directly();
    }
}

#[test]
fn friends_with_both_families_meet_over_ipv6_by_a_relay_that_has_both() {
    let Some(mut friends) = Friends::kept_apart() else {
        return;
    };
    let _server = friends.use_turn(&[0], "");
    friends.up();
    friends.meet_by("relayed", "relayed").lose_nothing();
    must_lead_over(&friends, true);
    friends.talk_directly();
    let text = friends.all[0].convoy(&["status", "wg0"]).succeeds().stdout;
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    let both = line.contains(", peers see 198.18.") && line.contains(" and [2001:2:");
    assert!(both, "{text}");
}

#[test]
#[ignore = "make interop"]
fn friends_with_both_families_meet_by_the_one_that_coturn_has() {
    let test = "friends_with_both_families_meet_by_the_one_that_coturn_has";
    if !require_programs(test, &["turnserver"]) {
        return;
    }
    for is_ipv6 in [true, false] {
        let Some(mut friends) = Friends::kept_apart() else {
            return;
        };
        friends.relay_by_coturn_of(is_ipv6, &[0, 1]);
        friends.up();
        friends.meet_by("relayed", "relayed").lose_nothing();
        must_lead_over(&friends, is_ipv6);
        friends.talk_directly();
    }
}

/// Requires that both paths lead to an address of IPv6, or else of IPv4.
fn must_lead_over(friends: &Friends, is_ipv6: bool) {
    let [a, b] = &friends.all;
    for (_, remote) in [a.path(b).unwrap(), b.path(a).unwrap()] {
        assert_eq!(remote.starts_with('['), is_ipv6, "{remote}");
    }
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
        friends.internet.cut(server.ip());
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
