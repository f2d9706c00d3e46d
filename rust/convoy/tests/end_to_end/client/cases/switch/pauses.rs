//! A pause ends, even if nobody is left to end it.

use std::{
    thread,
    time::{Duration, Instant},
};

use convoy_lab::eventually;

use super::{BEHIND, EVERYTHING, Leaks, ON, OUTSIDE, World};
use crate::{
    client::process::{crash, kill_all},
    scene::{DEADLINE, convoy_program},
};

/// A pause long enough to kill somebody.
const PAUSE: Duration = Duration::from_secs(8);

/// A pause of three seconds, less what passes before this test looks at the clock.
const LEAST: Duration = Duration::from_secs(2);

#[test]
fn a_pause_ends_in_time_although_its_supervisor_is_dead() {
    thread::scope(|scope| {
        for kill in [|world: &World| crash(world.supervisor()), kill_all] {
            scope.spawn(move || ends_in_time_after(kill));
        }
    });
}

fn ends_in_time_after(kill: fn(&World)) {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    let leaks = Leaks::watch(&world);
    world.up();
    world.reaches_all_behind();
    let time = format!("{}s", PAUSE.as_secs());
    world.convoy(&["pause", "wg0", "--for", &time]).succeeds();
    let begin = Instant::now();
    for outside in OUTSIDE {
        world.reaches(outside);
    }
    leaks.begins();
    kill(&world);
    leaks.begin();
    leaks.begins();
    // Pings alone may be lost, and a busy machine may send nothing for a while.
    let is_closed = || {
        leaks.begin();
        let is_answered = OUTSIDE.iter().any(|outside| world.answers(outside));
        (begin.elapsed() > PAUSE && !is_answered && !leaks.any()).then_some(())
    };
    assert!(eventually(DEADLINE, is_closed).is_some());
    leaks.begin();
    for outside in OUTSIDE {
        assert!(!world.answers(outside));
    }
    leaks.none("over");
    world.up();
    world.reaches_all_behind();
    leaks.none("taken over");
    world.down();
    leaks.begins();
}

#[test]
fn the_status_tells_of_a_pause_whose_supervisor_is_dead() {
    let Some(world) = World::new() else { return };
    for switch in [ON, ""] {
        world.configure(switch, EVERYTHING);
        let before = world.dump();
        world.up();
        world.reaches(BEHIND[0]);
        world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
        crash(world.supervisor());
        let status = world.status();
        assert_eq!(status["state"], "without supervisor", "{status}");
        assert_eq!(status["kill_switch_closed"], false, "{status}");
        assert!(status["paused_until"].is_u64(), "{status}");
        let warnings = status["warnings"].to_string();
        assert!(
            warnings.contains("paused when its supervisor died"),
            "{warnings}"
        );
        // It is over with the next one.
        world.up();
        world.reaches_all_behind();
        assert!(!world.answers(OUTSIDE[0]), "all goes through the tunnel");
        world.status_becomes("state", "up");
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn a_pause_that_is_ended_or_begun_again_leaves_nothing_open() {
    let Some(world) = World::new() else { return };
    world.configure(ON, EVERYTHING);
    world.up();
    let up = world.dump();
    for _ in 0..3 {
        world.convoy(&["pause", "wg0", "--for", "5m"]).succeeds();
        world.reaches(OUTSIDE[0]);
        world.convoy(&["reload", "wg0"]).succeeds();
        world.reaches(OUTSIDE[0]);
        world.convoy(&["pause", "wg0", "--for", "10m"]).succeeds();
        world.reaches(OUTSIDE[0]);
        world.convoy(&["resume", "wg0"]).succeeds();
        assert!(!world.answers(OUTSIDE[0]));
        assert_eq!(world.dump(), up);
    }
    world.convoy(&["pause", "wg0", "--for", "1s"]).succeeds();
    let is_over = || (world.dump() == up).then_some(());
    assert!(eventually(DEADLINE, is_over).is_some());
}

#[test]
fn a_pause_counts_from_now_on_a_machine_that_has_slept() {
    let Some(world) = World::with(&["unshare"]) else {
        return;
    };
    world.configure(ON, EVERYTHING);
    // Where nothing has slept, the clocks with and without sleep are equal. Either may be ahead here.
    for clocks in ["--boottime 1000000", "--monotonic 1000000"] {
        let program = convoy_program().display().to_string();
        world.shell(&format!(
            "unshare --time {clocks} --fork '{program}' up wg0 > /run/out-clocks 2>&1"
        ));
        world.reaches_all_behind();
        let up = world.dump();
        let begin = Instant::now();
        world.convoy(&["pause", "wg0", "--for", "3s"]).succeeds();
        world.reaches(OUTSIDE[0]);
        let is_over = || (world.dump() == up).then_some(());
        assert!(eventually(DEADLINE, is_over).is_some(), "{clocks}");
        assert!(begin.elapsed() >= LEAST, "{clocks}");
        assert!(!world.answers(OUTSIDE[0]), "{clocks}");
        world.reaches_all_behind();
        world.down();
    }
}
