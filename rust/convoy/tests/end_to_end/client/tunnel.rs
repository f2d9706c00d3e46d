//! The tunnel's process: strangers at its socket, and commands while it hangs.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, kill};

use convoy_lab::Turn;

use super::{
    process::crash,
    world::{BEHIND, EVERYTHING, World},
};
use crate::scene::DEADLINE;

/// How long a command may take although the tunnel hangs: a look at it, and its end by force.
const RESPONSIVE: Duration = Duration::from_secs(10);

#[test]
fn a_stranger_at_the_tunnels_socket_changes_nothing() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let tunnel = world.tunnel();
    let path = world.client.run_directory().join("convoy/wg0.tunnel");
    let connect = || UnixStream::connect(&path).unwrap();
    let _silent = connect();
    for said in ["GET / HTTP/1.0\r\n\r\n", "{\"type\":\"stop\"}\n"] {
        let mut stranger = connect();
        stranger.set_read_timeout(Some(DEADLINE)).unwrap();
        stranger.write_all(said.as_bytes()).unwrap();
        let mut heard = Vec::new();
        stranger.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"");
    }
    // The tunnel still asks its supervisor.
    world.shell("wg set wg0 fwmark 0x1234");
    assert!(world.shell("ip rule").contains("fwmark 0x1234"));
    world.reaches(BEHIND[0]);
    let status = world.status();
    assert_eq!(
        status["warnings"].as_array().map(Vec::len),
        Some(0),
        "{status}"
    );
    assert_eq!(world.tunnel(), tunnel);
}

#[test]
fn while_a_tunnel_hangs_that_is_started_again_status_and_down_answer_within_seconds() {
    let _alone = Turn::alone("it measures how long commands take");
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    // As a service manager that starts tunnels: this one never does.
    let path = world.client.run_directory().join("convoy/wg0.launch");
    let launcher = UnixListener::bind(&path).unwrap();
    crash(world.tunnel());
    let (hanging, _) = launcher.accept().unwrap();
    let start = Instant::now();
    let warnings = world.status()["warnings"].to_string();
    assert!(warnings.contains("about to be started"), "{warnings}");
    world.down();
    let time = start.elapsed();
    eprintln!("status and down: {time:?}");
    assert!(time < RESPONSIVE, "{time:?}");
    // It was sent the interface's descriptor.
    drop(hanging);
    fs::remove_file(path).unwrap();
    world.is_left_as(&before);
}

#[test]
#[ignore = "make interop"]
fn while_the_tunnel_hangs_status_and_down_answer_within_seconds() {
    let _alone = Turn::alone("it measures how long commands take");
    let Some(world) = World::new() else { return };
    // Its address is set again in another network.
    let several = format!("{EVERYTHING}#convoy: Endpoints = 203.0.113.2:51820\n");
    world.configure("SaveConfig = true\n", &several);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    let tunnel = world.tunnel();
    kill(tunnel, Signal::SIGSTOP).unwrap();
    world.changes_network();
    for _ in 0..3 {
        let start = Instant::now();
        let said = world.status()["warnings"].to_string();
        assert!(said.contains("does not answer"), "{said}");
        let time = start.elapsed();
        eprintln!("status: {time:?}");
        assert!(time < RESPONSIVE, "{time:?}");
    }
    let start = Instant::now();
    let down = world.convoy(&["down", "wg0"]);
    let time = start.elapsed();
    eprintln!("down: {time:?}");
    assert!(time < RESPONSIVE, "{time:?}");
    down.fails_with("cannot save the configuration");
    world.changes_network_back();
    world.is_left_as(&before);
}
