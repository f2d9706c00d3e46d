//! The logs of both processes.

use convoy_lab::eventually;

use super::world::{BEHIND, EVERYTHING, World};
use crate::{
    logs::entries,
    scene::{DEADLINE, convoy_program},
};

#[test]
fn both_processes_change_their_level_for_a_time() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let mut up = world.client.command(convoy_program());
    up.args(["up", "-f", "wg0"]).env("LOG_LEVEL", "info");
    let up = world.start_command(up);
    let is_up = || world.client.link().exists("wg0").then_some(());
    assert!(eventually(DEADLINE, is_up).is_some());
    world.status_becomes("state", "up");
    // What the tunnel and what the supervisor says at this level only.
    let (of_tunnel, of_both) = ("UAPI: set", "logging at level debug for 3600 s");
    let count = |message: &str| {
        let entries = entries(&up.said());
        entries
            .iter()
            .filter(|entry| entry["message"] == message)
            .count()
    };
    world.convoy(&["reload", "wg0"]).succeeds();
    assert_eq!(count(of_tunnel), 0);
    world
        .convoy(&["log", "wg0", "debug", "--for", "1h"])
        .succeeds();
    assert_eq!(count(of_both), 2);
    world.convoy(&["reload", "wg0"]).succeeds();
    assert!(count(of_tunnel) > 0, "{}", up.said());
    world
        .convoy(&["log", "wg0", "info", "--for", "1s"])
        .succeeds();
    let are_back = || (count("logging as before") == 2).then_some(());
    assert!(eventually(DEADLINE, are_back).is_some(), "{}", up.said());
    let before = count(of_tunnel);
    world.convoy(&["reload", "wg0"]).succeeds();
    assert_eq!(count(of_tunnel), before);
    world.reaches(BEHIND[0]);
    world.down();
    up.wait().succeeds();
}

#[test]
fn each_line_names_the_interface_once_and_a_peers_lines_the_peer() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    for (format, interface, peer) in [
        ("text", "interface=wg0", "peer="),
        ("json", r#""interface":"wg0""#, r#""peer":""#),
    ] {
        let mut up = world.client.command(convoy_program());
        up.args(["up", "-f", "--log-format", format, "wg0"]);
        up.env("LOG_LEVEL", "debug");
        let up = world.start_command(up);
        world.status_becomes("state", "up");
        world.reaches(BEHIND[0]);
        // From another port, which the server's next datagram tells.
        world.shell_at(
            &world.server,
            "wg set wg0 listen-port 51821; ping -c 1 10.8.0.2; wg set wg0 listen-port 51820",
        );
        world.down();
        let said = up.wait().succeeds().stdout;
        for line in said.lines() {
            assert_eq!(line.matches(interface).count(), 1, "{line}");
        }
        for message in [
            "Sending handshake initiation",
            "Handshake message received",
            "The peer has moved",
        ] {
            let mut lines = said
                .lines()
                .filter(|line| line.contains(message))
                .peekable();
            assert!(lines.peek().is_some(), "no {message:?} in {said}");
            for line in lines {
                assert_eq!(line.matches(peer).count(), 1, "{line}");
            }
        }
    }
}

#[test]
fn a_client_in_the_background_has_no_log_to_change() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.plainly(&["up", "wg0"]).succeeds();
    world
        .convoy(&["log", "wg0", "debug"])
        .fails_with("LOG_LEVEL");
    world.down();
}
