//! Either process dies, or both: nothing leaks, and everything can still be put back.

use std::{env, fs, time::Duration};

use convoy_lab::{Pid, Turn, eventually};

use super::{
    capture::Capture,
    process::{crash, kill_all},
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::scene::{DEADLINE, convoy_program, processes};

/// How long the tunnel may carry nothing.
const PAUSE: Duration = Duration::from_secs(2);
/// How often to try what a race decides.
const ROUNDS: usize = 3;
const ALL: &str = "DNS = 10.8.0.1, example.org\n#convoy: KillSwitch = on\n\
     PreDown = echo PreDown >> /run/hooks\nPostDown = echo PostDown %i >> /run/hooks\n";

#[test]
fn down_without_the_supervisor_puts_everything_back() {
    let Some(world) = World::new() else { return };
    world.configure(ALL, EVERYTHING);
    let before = world.dump();
    world.up();
    crash(world.supervisor());
    // The tunnel goes on.
    world.reaches_all_behind();
    world.down();
    world.is_left_as(&before);
    assert_eq!(hooks(&world), "PreDown\nPostDown wg0\n");
}

#[test]
fn down_without_either_process_puts_everything_back() {
    let Some(world) = World::new() else { return };
    world.configure(ALL, EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    kill_all(&world);
    world.down();
    world.is_left_as(&before);
    assert!(hooks(&world).ends_with("PostDown wg0\n"));
}

#[test]
fn up_without_either_process_starts_anew() {
    let Some(world) = World::new() else { return };
    world.configure(ALL, EVERYTHING);
    let before = world.dump();
    world.up();
    let up = world.dump();
    kill_all(&world);
    world.up();
    world.reaches_all_behind();
    assert_eq!(world.dump(), up);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn down_all_finds_what_killed_processes_left() {
    let Some(world) = World::new() else { return };
    world.configure(ALL, EVERYTHING);
    let before = world.dump();
    world.up();
    kill_all(&world);
    world.convoy(&["down", "--all"]).succeeds();
    world.is_left_as(&before);
}

#[test]
fn a_killed_tunnel_is_started_again_and_keeps_link_and_routes() {
    let _alone = Turn::alone("it bounds how long packets pause");
    let Some(world) = World::new() else { return };
    for peer in [EVERYTHING, BEHIND_ONLY] {
        world.configure("", peer);
        let before = world.dump();
        world.up();
        let streams = BEHIND.map(|to| Stream::start(&world, to));
        let (tunnel, network) = (world.tunnel(), network(&world));
        let capture = Capture::new(&world);
        crash(tunnel);
        is_another(&world, tunnel, || {
            assert_eq!(self::network(&world), network)
        });
        streams.iter().for_each(Stream::flows);
        Stream::never_paused(&streams, PAUSE);
        drop(streams);
        let seen = capture.seen();
        assert!(seen.iter().any(|packet| packet.is_datagram()));
        let clear: Vec<_> = seen.iter().filter(|packet| packet.is_inner()).collect();
        assert!(clear.is_empty(), "{clear:?}");
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn a_tunnel_that_is_killed_again_and_again_is_started_again_and_again() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    for _ in 0..3 {
        let tunnel = world.tunnel();
        crash(tunnel);
        is_another(&world, tunnel, || ());
        world.reaches_all_behind();
    }
    world.down();
    world.is_left_as(&before);
}

#[test]
fn while_both_processes_are_dead_nothing_passes_in_the_clear() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    let capture = Capture::new(&world);
    // The capture works: without the tunnel they do pass.
    assert!(!world.answers(BEHIND[0]));
    capture.until(|packet| packet.is_inner());
    world.up();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    capture.seen();
    kill_all(&world);
    assert!(BEHIND.iter().all(|to| !world.answers(to)));
    world.up();
    streams.iter().for_each(Stream::flows);
    drop(streams);
    let seen = capture.seen();
    let clear: Vec<_> = seen.iter().filter(|packet| packet.is_inner()).collect();
    assert!(clear.is_empty(), "{clear:?}");
    world.down();
    world.is_left_as(&before);
}

#[test]
fn up_goes_on_after_a_supervisor_that_died_as_its_tunnel_was_starting() {
    let Some(world) = World::new() else { return };
    world.configure(ALL, EVERYTHING);
    let before = world.dump();
    let socket = world.client.run_directory().join("convoy/wg0.tunnel");
    for _ in 0..ROUNDS {
        let supervisor = world.start(&["up", "wg0", "-f"]);
        // Made just before the process is started.
        let starts = || socket.exists().then_some(());
        assert!(eventually(DEADLINE, starts).is_some());
        crash(supervisor.pid());
        world.up();
        world.reaches(BEHIND[0]);
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn rules_that_are_still_being_loaded_when_the_supervisor_dies_are_undone_too() {
    let Some(world) = World::new() else { return };
    world.configure(ALL, EVERYTHING);
    let before = world.dump();
    world.shell(
        "mkdir /run/slow
         printf '#!/bin/sh\ncat > /run/slow/rules\nsleep 0.5\nexec %s \"$@\" < /run/slow/rules\n' \
             $(command -v nft) > /run/slow/nft
         chmod +x /run/slow/nft",
    );
    let path = env::var("PATH").unwrap();
    let mut command = world.client.command(convoy_program());
    command
        .args(["up", "wg0", "-f"])
        .env("PATH", format!("/run/slow:{path}"));
    let supervisor = world.start_command(command);
    let rules = world.client.run_directory().join("slow/rules");
    let are_read = || {
        fs::metadata(&rules)
            .is_ok_and(|rules| rules.len() > 0)
            .then_some(())
    };
    assert!(eventually(DEADLINE, are_read).is_some());
    crash(supervisor.pid());
    world.down();
    let is_alone = || processes(&world.client).is_empty().then_some(());
    assert!(eventually(DEADLINE, is_alone).is_some());
    world.is_left_as(&before);
}

#[test]
fn a_hook_that_has_run_as_the_supervisor_dies_does_not_run_again() {
    let Some(world) = World::new() else { return };
    let hooks = "PreDown = echo PreDown >> /run/hooks\n\
         PostDown = echo PostDown >> /run/hooks; mkdir /run/begun && sleep 1007 || true\n";
    world.configure(hooks, EVERYTHING);
    let before = world.dump();
    world.up();
    let down = world.start(&["down", "wg0"]);
    let begun = world.client.run_directory().join("begun");
    assert!(eventually(DEADLINE, || begun.exists().then_some(())).is_some());
    kill_all(&world);
    drop(down);
    world.down();
    world.is_left_as(&before);
    assert_eq!(self::hooks(&world), "PreDown\nPostDown\nPostDown\n");
}

/// Waits for a tunnel with another process.
fn is_another(world: &World, former: Pid, meanwhile: impl Fn()) {
    let is_another = || {
        meanwhile();
        let now = world.status()["tunnel_pid"].as_i64();
        now.filter(|pid| *pid != i64::from(former.as_raw()))
    };
    let other = eventually(DEADLINE, is_another);
    assert!(other.is_some(), "no other tunnel was started");
}

/// The link, its addresses, routes and rules.
fn network(world: &World) -> String {
    world.shell(
        "ip -o link show wg0; ip -brief address; ip rule; ip -6 rule; ip route show table all; \
         ip -6 route show table all",
    )
}

fn hooks(world: &World) -> String {
    fs::read_to_string(world.client.run_directory().join("hooks")).unwrap()
}
