//! Another program removes the rules of a closed switch.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use convoy_lab::eventually;

use super::{BEHIND, EVERYTHING, Leaks, ON, OUTSIDE, World};
use crate::{client::process::crash, scene::DEADLINE};

/// Removes the rules in every way for two seconds and three times at least, as fast as it can; prints how often it has
/// tried.
const LOOP: &str = "end=$(($(date +%s) + 2)); tries=0
     while [ $tries -lt 3 ] || [ $(date +%s) -lt $end ]; do
         nft flush ruleset || true
         for family in inet netdev; do
             nft delete table $family convoy_wg0 || true
             nft flush table $family convoy_wg0 || true
         done
         nft insert rule inet convoy_wg0 output accept || true
         tries=$((tries + 1))
     done 2> /dev/null
     echo $tries";

#[test]
fn rules_that_another_program_removes_in_a_loop_stay_and_the_switch_is_told_to_be_closed() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    let before = world.dump();
    let leaks = Leaks::watch(&world);
    world
        .convoy(&["up", "wg0", "--metrics=unix:/run/metrics"])
        .succeeds();
    world.reaches_all_behind();
    let events = world.start(&["events", "wg0", "--json"]);
    let hears = || {
        world.convoy(&["reload", "wg0"]).succeeds();
        events.said().contains("reloaded").then_some(())
    };
    assert!(eventually(DEADLINE, hears).is_some());
    let is_owned = world.shell("nft list ruleset").contains("flags owner");
    leaks.begin();
    let tries: u32 = world.shell(LOOP).trim().parse().unwrap();
    eprintln!("tried {tries} times");
    if is_owned {
        leaks.none("removed in a loop");
        assert!(!events.said().contains("kill_switch_opened"));
    } else {
        eprintln!("this kernel knows no owned tables: it may leak until the rules are back");
        let is_closed = || (world.status()["kill_switch_closed"] == true).then_some(());
        assert!(eventually(DEADLINE, is_closed).is_some());
    }
    assert!(!world.answers(OUTSIDE[0]));
    world.reaches(BEHIND[0]);
    is_told_to_be(&world, true);
    // What a request changes still is changed.
    world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
    leaks.begins();
    is_told_to_be(&world, false);
    assert!(events.said().contains("kill_switch_opened"));
    world.convoy(&["resume", "wg0"]).succeeds();
    is_told_to_be(&world, true);
    world.down();
    leaks.begins();
    drop((events, leaks));
    world.shell("ip link delete eth1");
    world.is_left_as(&before);
}

/// Tables that somebody else has made: the kernel gives them to no owner. Whatever was in them is gone.
const PLAIN: &str =
    "printf 'flush ruleset\nadd table inet convoy_wg0\nadd table netdev convoy_wg0\n' | nft -f -";

#[test]
fn tables_that_cannot_be_owned_are_filled_again_at_once_however_often_somebody_empties_them() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    let leaks = Leaks::watch(&world);
    world.shell(PLAIN);
    world.up();
    world.reaches_all_behind();
    let is_owned = || world.shell("nft list ruleset").contains("flags owner");
    assert!(!is_owned());
    for _ in 0..5 {
        world.shell(PLAIN);
        // Sooner than a second, which nothing here measures exactly.
        let is_closed = || {
            world
                .shell("nft list ruleset")
                .contains("drop")
                .then_some(())
        };
        assert!(eventually(DEADLINE, is_closed).is_some());
        assert!(!is_owned());
        leaks.begin();
        assert!(!world.answers(OUTSIDE[0]));
        leaks.none("filled again");
    }
    // Exceptions of somebody else's go, too.
    world.shell("nft insert rule inet convoy_wg0 output accept");
    let is_gone = || {
        let rules = world.shell("nft list chain inet convoy_wg0 output");
        let mut verdicts = rules.lines().map(str::trim);
        (!verdicts.any(|line| line == "accept")).then_some(())
    };
    assert!(eventually(DEADLINE, is_gone).is_some());
    is_closed_in(&world);
    // The next supervisor finds them so, too.
    crash(world.supervisor());
    world.shell(PLAIN);
    world.up();
    leaks.begin();
    is_closed_in(&world);
    world.reaches_all_behind();
    leaks.none("taken over");
    world.down();
    leaks.begins();
    assert!(!world.shell("nft list ruleset").contains("convoy"));
}

/// The kernel has the rules, and the status says so.
fn is_closed_in(world: &World) {
    let status = world.status();
    assert_eq!(status["kill_switch_closed"], true, "{status}");
    assert!(!world.answers(OUTSIDE[0]));
}

#[test]
fn without_a_supervisor_the_status_says_what_the_kernel_has() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    crash(world.supervisor());
    let status = world.status();
    assert_eq!(status["kill_switch"], "on", "{status}");
    assert_eq!(status["kill_switch_closed"], true, "{status}");
    // Nobody owns it now.
    world.shell("nft delete table inet convoy_wg0");
    let status = world.status();
    assert_eq!(status["kill_switch_closed"], false, "{status}");
    let text = world.convoy(&["status", "wg0"]).stdout;
    assert!(text.contains("on, but open"), "{text}");
    world.up();
    assert_eq!(world.status()["kill_switch_closed"], true);
    assert!(!world.answers(OUTSIDE[0]));
}

fn is_told_to_be(world: &World, closed: bool) {
    let status = world.status();
    assert_eq!(status["kill_switch"], "on", "{status}");
    assert_eq!(status["kill_switch_closed"], closed, "{status}");
    let socket = world.client.run_directory().join("metrics");
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let line = format!(
        "convoy_kill_switch_closed{{interface=\"wg0\"}} {}\n",
        u8::from(closed)
    );
    assert!(metrics.contains(&line), "{metrics}");
}
