//! Two friends meet: `convoy up` at both, a hub of wireguard-go that knows nothing of it, and routers between them.
//!
//! ```text
//!  a 10.8.0.2 ── home ──┐
//!                       ├── internet ── hub 10.8.0.1 (wireguard-go), STUN servers (coturn)
//!  b 10.8.0.3 ── home ──┘
//! ```

mod conversation;
mod forwarded;
pub(crate) mod friend;
pub(crate) mod friends;
mod hubs;
mod idle;
mod igd;
pub(crate) mod meeting;
mod nat;
mod numbers;
mod relayed;
mod switches;

use conversation::Conversation;
use convoy_lab::{eventually, loss::lose_arriving, require_programs};
use forwarded::Speaks;
use friends::Friends;

use crate::{
    router::{Nat, RouterOptions},
    scene::{DEADLINE, output_of},
};

/// A home without IPv6.
const HOME: RouterOptions = RouterOptions {
    nat: Nat::Home,
    hairpin: false,
    ipv6: false,
    inside: [192, 168],
};
const HARD: RouterOptions = RouterOptions {
    nat: Nat::Hard,
    ..HOME
};

/// Brings the tunnels up, and requires a direct path between addresses of these kinds. `ask` starts a STUN server.
fn friends_meet_by(friends: Option<Friends>, ask: Option<fn(&mut Friends)>, kinds: [&str; 2]) {
    let Some(mut friends) = friends else { return };
    if let Some(ask) = ask {
        ask(&mut friends);
    }
    friends.up();
    friends.meet_by(kinds[0], kinds[1]).lose_nothing();
    friends.talk_directly();
}

#[test]
fn two_friends_at_the_internet_itself_meet() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    let events = friends.all[0].follow_events();
    friends.up();
    let is_up = || events.said().contains("the tunnel is up").then_some(());
    assert!(eventually(DEADLINE, is_up).is_some(), "{}", events.said());
    friends.meet_by("host", "host");
    let is_told = || {
        events
            .said()
            .contains("10.8.0.3 is reached directly")
            .then_some(())
    };
    assert!(eventually(DEADLINE, is_told).is_some(), "{}", events.said());
    let remote = friends.all[0].path(&friends.all[1]).unwrap().1;
    let expected = format!("[{}]:51823", friends.all[1].outside.v6.unwrap());
    assert_eq!(remote, expected, "IPv6 comes first");
    friends.talk_directly();
    // Down and up again.
    friends.all[0].convoy(&["down", "wg0"]).succeeds();
    friends.all[0].convoy(&["up", "wg0"]).succeeds();
    friends.meet_by("host", "host");
    friends.talk_directly();
}

#[test]
fn two_friends_behind_a_home_router_each_meet_by_what_stun_says() {
    let friends = Friends::apart([Some(HOME), Some(HOME)]);
    friends_meet_by(friends, Some(Friends::use_stun), ["reflexive", "reflexive"]);
}

#[test]
#[ignore = "make interop"]
fn two_friends_meet_by_what_coturn_says() {
    if !require_programs("two_friends_meet_by_what_coturn_says", &["turnserver"]) {
        return;
    }
    let friends = Friends::apart([Some(HOME), Some(HOME)]);
    friends_meet_by(
        friends,
        Some(Friends::use_coturn),
        ["reflexive", "reflexive"],
    );
}

#[test]
#[ignore = "make interop"]
fn a_port_that_miniupnpd_forwards_lets_friends_meet_by_a_closed_kill_switch() {
    let test = "a_port_that_miniupnpd_forwards_lets_friends_meet_by_a_closed_kill_switch";
    if !require_programs(test, &["miniupnpd"]) {
        return;
    }
    let Some(mut friends) = Friends::apart([Some(HOME), Some(HARD)]) else {
        return;
    };
    friends.forward_ports(Speaks::Pcp);
    let [a, _] = &friends.all;
    let lines = "#convoy: PortMap = yes\n#convoy: KillSwitch = on";
    friends.configure_all(a, lines, "0.0.0.0/0, ::/0", &a.direct());
    friends.up();
    friends.meet_by("learnt", "mapped");
    friends.talk_directly();
    let said = format!("port mapping: {}:51822 by PCP", Friends::FORWARDED);
    let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
    assert!(text.contains(&said), "{text}");

    assert_eq!(friends.forwarded(), 1);
    a.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(friends.forwarded(), 0, "withdrawn");

    a.convoy(&["up", "wg0"]).succeeds();
    let is_forwarded = || (friends.forwarded() == 1).then_some(());
    assert!(eventually(DEADLINE, is_forwarded).is_some());
    let nonce = eventually(DEADLINE, || a.noted_nonce());
    assert!(nonce.is_some());
    a.kill_supervisor();
    a.convoy(&["up", "wg0"]).succeeds();
    let is_mapped = || {
        let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
        text.contains(&said).then_some(())
    };
    assert!(eventually(DEADLINE, is_mapped).is_some(), "taken over");
    a.convoy(&["status", "wg0"]).succeeds();
    // A router refuses the port to anybody with another secret.
    assert_eq!(a.noted_nonce(), nonce);

    let forwards = |count| {
        let is_so = || (friends.forwarded() == count).then_some(());
        assert!(eventually(DEADLINE, is_so).is_some(), "{count}");
    };
    friends.configure(a, "", &a.direct());
    a.convoy(&["reload", "wg0"]).succeeds();
    forwards(0);
    friends.configure(a, "#convoy: PortMap = yes", &a.direct());
    a.convoy(&["reload", "wg0"]).succeeds();
    forwards(1);
    assert!(eventually(DEADLINE, || a.noted_nonce()).is_some());
    a.kill_supervisor();
    a.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(friends.forwarded(), 0, "withdrawn after a crash");
}

#[test]
#[ignore = "make interop"]
fn a_port_that_miniupnpd_forwards_by_upnp_alone_lets_friends_meet_and_is_withdrawn() {
    let test = "a_port_that_miniupnpd_forwards_by_upnp_alone_lets_friends_meet_and_is_withdrawn";
    if !require_programs(test, &["miniupnpd"]) {
        return;
    }
    let Some(mut friends) = Friends::apart([Some(HOME), Some(HARD)]) else {
        return;
    };
    friends.forward_ports(Speaks::Upnp);
    let [a, _] = &friends.all;
    let lines = "#convoy: PortMap = yes\n#convoy: KillSwitch = on";
    friends.configure_all(a, lines, "0.0.0.0/0, ::/0", &a.direct());
    friends.up();
    let said = format!("port mapping: {}:51822 by UPnP", Friends::FORWARDED);
    let is_mapped = || {
        let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
        text.contains(&said).then_some(())
    };
    assert!(eventually(3 * DEADLINE, is_mapped).is_some());
    friends.meet_by("learnt", "mapped");
    friends.talk_directly();
    assert_eq!(friends.forwarded(), 1);
    a.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(friends.forwarded(), 0, "withdrawn");

    a.convoy(&["up", "wg0"]).succeeds();
    assert!(eventually(3 * DEADLINE, is_mapped).is_some());
    assert!(eventually(DEADLINE, || a.noted_nonce()).is_some());
    a.kill_supervisor();
    a.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(friends.forwarded(), 0, "withdrawn after a crash");
}

#[test]
fn a_router_that_forwards_nothing_is_told_of() {
    let Some(friends) = Friends::apart([Some(HOME), None]) else {
        return;
    };
    let [a, _] = &friends.all;
    friends.configure(a, "#convoy: PortMap = yes", &a.direct());
    friends.up();
    let is_told = || {
        let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
        let said =
            "port mapping: none: the router 192.168.0.1 answers neither PCP, NAT-PMP nor UPnP";
        // It is wrapped.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        text.contains(said).then_some(())
    };
    assert!(eventually(2 * DEADLINE, is_told).is_some());
    friends.meet_by("host", "learnt");
    a.convoy(&["down", "wg0"]).succeeds();
}

#[test]
fn a_friend_behind_a_hard_nat_meets_one_at_the_internet_by_the_address_heard() {
    let friends = Friends::apart([Some(HARD), None]);
    friends_meet_by(friends, None, ["host", "learnt"]);
}

#[test]
fn friends_behind_one_router_meet_at_home() {
    let friends = Friends::together(HOME);
    friends_meet_by(friends, Some(Friends::use_stun), ["host", "host"]);
}

/// A router that keeps its hosts apart, as one for guests does, leaves them its own address alone.
#[test]
fn friends_kept_apart_by_their_router_meet_by_its_hairpin() {
    let hairpin = RouterOptions {
        hairpin: true,
        ..HOME
    };
    let friends = Friends::together(hairpin).inspect(Friends::keep_apart);
    friends_meet_by(friends, Some(Friends::use_stun), ["reflexive", "reflexive"]);
}

#[test]
fn friends_kept_apart_by_a_router_without_hairpin_stay_at_the_hub() {
    let Some(mut friends) = Friends::together(HOME) else {
        return;
    };
    friends.keep_apart();
    friends.use_stun();
    friends.stay_at_the_hub("unreachable");
}

#[test]
fn homes_behind_the_nat_of_a_provider_meet() {
    let friends = Friends::behind_provider(HOME);
    friends_meet_by(friends, Some(Friends::use_stun), ["reflexive", "reflexive"]);
}

#[test]
fn two_firewalls_of_ipv6_open_from_inside() {
    let home = RouterOptions { ipv6: true, ..HARD };
    let friends = Friends::apart([Some(home), Some(home)]);
    friends_meet_by(friends, None, ["host", "host"]);
}

#[test]
fn friends_meet_by_ipv6_although_the_internet_of_ipv6_is_in_the_tunnel() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    for friend in &friends.all {
        friends.configure_all(friend, "", "10.8.0.0/24, 2000::/3", &friend.direct());
    }
    friends.up();
    friends.meet_by("host", "host").lose_nothing();
    let remote = friends.all[0].path(&friends.all[1]).unwrap().1;
    let expected = format!("[{}]:51823", friends.all[1].outside.v6.unwrap());
    assert_eq!(remote, expected);
    friends.talk_directly();
}

#[test]
fn a_hub_that_restarts_disturbs_nobody() {
    let Some(mut friends) = Friends::apart([None, None]) else {
        return;
    };
    friends.up();
    friends.meet_by("host", "host");
    friends.restart_hub();
    friends.talk_directly();
    for friend in &friends.all {
        friend.reaches_hub();
    }
}

#[test]
fn a_friend_who_gets_another_address_stays_in_touch() {
    let Some(friends) = Friends::apart([None, Some(HOME)]) else {
        return;
    };
    friends.up();
    friends.meet_by("learnt", "host");
    let [a, b] = &friends.all;
    let moved = a.moves();
    let is_there = || (b.path(a).is_ok_and(|(_, remote)| remote == moved)).then_some(());
    let ping = a.start_ping(b);
    assert!(
        eventually(2 * DEADLINE, is_there).is_some(),
        "{:?}",
        b.path(a)
    );
    drop(ping);
    friends.talk_directly();
}

#[test]
fn two_hard_nats_leave_data_at_the_hub_and_the_status_says_why() {
    let Some(mut friends) = Friends::apart([Some(HARD), Some(HARD)]) else {
        return;
    };
    friends.use_stun();
    friends.stay_at_the_hub("unreachable");
    let [a, _] = &friends.all;
    let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
    assert!(
        text.contains("by the hub: none of its addresses answers"),
        "{text}"
    );
}

#[test]
fn a_friend_with_a_stock_wireguard_is_reached_by_the_hub() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    let [a, b] = &friends.all;
    friends.configure(b, "", "");
    friends.stay_at_the_hub("no_answer");
    b.reaches(a);
}

#[test]
#[ignore = "make interop"]
fn a_path_that_is_cut_gives_its_data_to_the_hub_and_comes_back() {
    let Some(friends) = Friends::apart([None, Some(HOME)]) else {
        return;
    };
    friends.up();
    friends.meet_by("learnt", "host");
    let [a, b] = &friends.all;
    // The hub is behind the same router's outside: only the other friend is cut off.
    friends.homes[0].cut(a.outside.v4.into());
    let ping = a.start_ping(b);
    let is_lost = || a.path(b).is_err().then_some(());
    assert!(eventually(3 * DEADLINE, is_lost).is_some());
    drop(ping);
    a.reaches(b);
    friends.homes[0].mend();
    friends.meet_by("learnt", "host");
    friends.talk_directly();
}

#[test]
#[ignore = "make interop"]
fn a_connection_lives_through_all_that_happens_to_its_path() {
    let Some(mut friends) = Friends::apart([None, Some(HOME)]) else {
        return;
    };
    friends.up();
    let conversation = Conversation::start(&friends.all[0], &friends.all[1]);
    friends.meet_by("learnt", "host");
    conversation.goes_on();
    friends.homes[0].cut(friends.all[0].outside.v4.into());
    let [a, b] = &friends.all;
    let is_lost = || a.path(b).is_err().then_some(());
    assert!(eventually(3 * DEADLINE, is_lost).is_some());
    conversation.goes_on();
    friends.restart_hub();
    conversation.goes_on();
    friends.homes[0].mend();
    let [a, b] = &friends.all;
    // They have given up for a minute, unless the network changes.
    let moved = a.moves();
    let is_there = || (b.path(a).is_ok_and(|(_, remote)| remote == moved)).then_some(());
    assert!(
        eventually(2 * DEADLINE, is_there).is_some(),
        "{:?}",
        b.path(a)
    );
    conversation.goes_on();
    conversation.ends_well();
}

#[test]
#[ignore = "make interop"]
fn friends_who_both_move_on_a_bad_network_stay_in_touch() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    let [a, b] = &friends.all;
    for friend in [a, b] {
        output_of(&friend.place, "ip", &["-6", "addr", "flush", "dev", "eth0"]);
        lose_arriving(&friend.place, "eth0", 20.0).unwrap();
    }
    friends.up();
    friends.meet_by("host", "host");
    let moved = [a.moves(), b.moves()];
    let are_there = || {
        let are = [b.path(a), a.path(b)];
        let remotes = are.map(|path| path.map(|(_, remote)| remote));
        (remotes == moved.clone().map(Ok)).then_some(())
    };
    let ping = a.start_ping(b);
    let found = eventually(3 * DEADLINE, are_there);
    assert!(found.is_some(), "{:?} {:?}", b.path(a), a.path(b));
    drop(ping);
}

#[test]
fn direct_peers_come_and_go_by_reload() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    friends.up();
    friends.meet_by("host", "host");
    let [a, b] = &friends.all;
    friends.configure(a, "", "");
    a.convoy(&["reload", "wg0"]).succeeds();
    let before = friends.at_hub();
    a.reaches(b);
    assert!(friends.at_hub() >= before + 50, "by the hub");
    friends.configure(a, "", &a.direct());
    a.convoy(&["reload", "wg0"]).succeeds();
    friends.meet_by("host", "host");
    friends.talk_directly();
}

#[test]
fn a_closed_kill_switch_lets_friends_meet() {
    let Some(friends) = Friends::apart([None, Some(HOME)]) else {
        return;
    };
    for friend in &friends.all {
        let switch = "#convoy: KillSwitch = on";
        friends.configure_all(friend, switch, "0.0.0.0/0, ::/0", &friend.direct());
    }
    friends.up();
    friends.meet_by("learnt", "host");
    friends.talk_directly();
}
