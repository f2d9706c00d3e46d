//! `convoy exec`: no socket of a program outside, wherever it is, and no other kind of socket.

use std::process::Command;

use crate::client::{
    user::{FILE, PROGRAM, RUNTIME, USER, said, user, world_with},
    world::World,
};

/// Tells which of the sockets that are its arguments somebody answers.
const CONNECT: &str = "
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print('connected', path)
    except OSError:
        pass
print('end')";

/// Listens at the sockets that are its arguments.
const LISTEN: &str = "
import os, socket, sys, time
held = []
for path in sys.argv[1:]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind(path)
    held[-1].listen(64)
open('/run/user/7777/shared/listening', 'w').close()
time.sleep(60)";

#[test]
fn sockets_of_programs_outside_are_hidden_wherever_they_are() {
    let Some(world) = world_with("", &["python3"]) else {
        return;
    };
    world.shell(&format!(
        "mount -t tmpfs -o mode=1777 tmpfs /tmp
         mkdir /tmp/runtime /tmp/home; chmod 700 /tmp/runtime /tmp/home; chown {USER} /tmp/runtime /tmp/home
         chown -R {USER} {RUNTIME}"
    ));
    let usual = [
        "/run/user/7777/bus",
        "/run/user/7777/gnupg/S.dirmngr",
        "/run/user/7777/podman/podman.sock",
        "/run/user/7777/docker.sock",
        "/run/user/7777/systemd/private",
    ];
    let elsewhere = [
        "/tmp/runtime/bus",
        "/tmp/runtime/docker.sock",
        "/tmp/runtime/gnupg/S.dirmngr",
        "/tmp/home/.gnupg/S.dirmngr",
        "/tmp/home/.docker/run/docker.sock",
        "/tmp/containers.sock",
        "/tmp/dbus-session",
    ];
    let shown = ["/run/user/7777/pulse/native", "/tmp/runtime/pulse/native"];
    let all = [&usual[..], &elsewhere, &shown].concat();
    let mut listener = user(&world, "python3");
    listener.args(["-c", LISTEN]).args(&all);
    let mut listener = listener.spawn().unwrap();
    let ready = || {
        let found = world.shell(&format!("ls {RUNTIME}/shared"));
        found.contains("listening").then_some(())
    };
    assert!(convoy_lab::eventually(crate::scene::DEADLINE, ready).is_some());
    for runtime in [None, Some(RUNTIME), Some("/tmp/runtime")] {
        let connected = said(&connecting(&world, runtime, &all).output().unwrap());
        for path in usual.iter().chain(&elsewhere[3..]) {
            assert!(!connected.contains(path), "{runtime:?}: {connected}");
        }
        if runtime == Some("/tmp/runtime") {
            assert!(!connected.contains("runtime/bus"), "{connected}");
            assert!(!connected.contains("runtime/docker.sock"), "{connected}");
            assert!(!connected.contains("runtime/gnupg"), "{connected}");
        }
        for path in shown {
            assert!(connected.contains(path), "{runtime:?}: {connected}");
        }
    }
    listener.kill().unwrap();
    listener.wait().unwrap();
}

#[test]
fn a_command_cannot_retarget_its_own_tunnel() {
    let Some(world) = world_with("", &["python3"]) else {
        return;
    };
    world.shell(&format!(
        "mount -t tmpfs -o mode=1777 tmpfs /tmp; mkdir -m 700 /tmp/runtime; chown {USER} /tmp/runtime"
    ));
    for runtime in [None, Some("/tmp/runtime"), Some(RUNTIME)] {
        let sockets = match runtime {
            Some(runtime) => format!("{runtime}/convoy/wg0"),
            None => format!("/tmp/convoy-{USER}/wg0"),
        };
        let ends = ["sock", "tunnel", "control", "exec"];
        let all = ends.map(|end| format!("{sockets}.{end}"));
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let outcome = connecting(&world, runtime, &all).output().unwrap();
        assert_eq!(said(&outcome), "end\n", "{runtime:?}");
    }
}

#[test]
fn only_sockets_of_four_families_can_be_made() {
    let Some(world) = world_with("", &["python3"]) else {
        return;
    };
    let script = "
import socket
for family in (1, 2, 10, 16):
    socket.socket(family, socket.SOCK_DGRAM).close()
for family in (4, 5, 17, 30, 38, 40, 44):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
        print('made', family)
    except OSError as error:
        if error.errno != 97:
            print(family, error)
print('end')";
    let mut command = user(&world, PROGRAM);
    command.args(["exec", FILE, "--", "python3", "-c", script]);
    assert_eq!(said(&command.output().unwrap()), "end\n");
}

/// A command inside that tries sockets, with this runtime directory in its environment.
fn connecting(world: &World, runtime: Option<&str>, sockets: &[&str]) -> Command {
    let mut command = user(world, PROGRAM);
    command.args(["exec", FILE, "--", "python3", "-c", CONNECT]);
    command.args(sockets);
    match runtime {
        Some(runtime) => command.env("XDG_RUNTIME_DIR", runtime),
        None => command.env_remove("XDG_RUNTIME_DIR"),
    };
    command.env("HOME", "/tmp/home");
    command.env("DOCKER_HOST", "unix:///tmp/containers.sock");
    command.env(
        "DBUS_SESSION_BUS_ADDRESS",
        "unix:path=/tmp/dbus-session,guid=1",
    );
    command
}
