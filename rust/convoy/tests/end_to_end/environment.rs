//! Environment variables of the daemon, and how it fails if one is invalid.

use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::{UnixDatagram, UnixListener},
    },
    process::{Command, Output, Stdio},
};

use convoy_lab::{Namespace, eventually};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    drop_in::open_tun,
    scene::{DEADLINE, convoy_program, lab, wait_for_socket},
};

#[test]
fn the_environment_can_keep_the_daemon_in_the_foreground() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let mut command = daemon(&namespace);
    let output = run(&namespace, command.env("WG_PROCESS_FOREGROUND", "1"), b"");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn log_levels_match_the_reference() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let (ready, refused, debug) = ("ready", "request refused", "UAPI: set");
    for (level, shown, hidden) in [
        (Some("verbose"), vec![ready, refused, debug], vec![]),
        (Some("debug"), vec![ready, refused, debug], vec![]),
        (Some("info"), vec![ready, refused], vec![debug]),
        (Some("error"), vec![refused], vec![ready, debug]),
        (Some("silent"), vec![], vec![ready, refused, debug]),
        (Some("loud"), vec![ready, refused], vec![debug]),
        (Some(""), vec![ready, refused], vec![debug]),
        (None, vec![ready, refused], vec![debug]),
    ] {
        let mut command = daemon(&namespace);
        command.arg("-f");
        level.map(|level| command.env("LOG_LEVEL", level));
        let output = run(&namespace, &mut command, b"set=1\n\nset=1\nx\n\n");
        let said = String::from_utf8(output.stdout).unwrap();
        let is_said = |word: &&str| said.contains(word);
        assert!(shown.iter().all(is_said), "{level:?}: {said}");
        assert!(!hidden.iter().any(is_said), "{level:?}: {said}");
        assert!(level != Some("silent") || said.is_empty(), "{said}");
    }
}

#[test]
fn a_daemon_in_the_background_logs_only_on_request() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    for (level, is_kept) in [
        (Some("verbose"), true),
        (Some("silent"), false),
        (None, false),
    ] {
        let mut command = daemon(&namespace);
        level.map(|level| command.env("LOG_LEVEL", level));
        // The pipe closes when the last process lets go of it: the daemon, if it kept it.
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        wait_for_socket(&namespace);
        namespace.link().remove("wg0").unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(said.contains("ready"), is_kept, "{level:?}: {said}");
        wait_for_end(&namespace);
    }
}

#[test]
fn an_invalid_descriptor_is_an_error() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let file = File::open("/dev/null").unwrap();
    let tun = namespace.run(|| open_tun("wg5")).unwrap().unwrap();
    let socket = UnixDatagram::unbound().unwrap();
    for fd in [file.as_fd(), tun.as_fd(), socket.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    }
    let number = |fd: &dyn AsRawFd| fd.as_raw_fd().to_string();
    let [file, tun, socket] = [number(&file), number(&tun), number(&socket)];
    for (variable, value) in [
        ("WG_TUN_FD", "nonsense"),
        ("WG_TUN_FD", "-1"),
        ("WG_TUN_FD", "1"),
        ("WG_TUN_FD", "999"),
        ("WG_TUN_FD", &*file),
        ("WG_UAPI_FD", "nonsense"),
        ("WG_UAPI_FD", "999"),
        ("WG_UAPI_FD", &*file),
        ("WG_UAPI_FD", &*tun),
        ("WG_UAPI_FD", &*socket),
    ] {
        for foreground in ["0", "1"] {
            // A daemon that started anyway would run forever.
            let mut command = namespace.command("timeout");
            command.arg("20").arg(convoy_program()).arg("wg0");
            command.env("WG_PROCESS_FOREGROUND", foreground);
            let output = command.env(variable, value).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{variable}={value}: {said}");
            assert!(said.contains(variable), "{variable}={value}: {said}");
            assert!(!namespace.link().exists("wg0"), "{variable}={value}");
            assert!(
                !namespace
                    .run_directory()
                    .join("wireguard/wg0.sock")
                    .exists()
            );
        }
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let mut command = daemon(&namespace);
    command.arg("-f").env("WG_TUN_FD", "").env("WG_UAPI_FD", "");
    assert_eq!(run(&namespace, &mut command, b"").status.code(), Some(0));
}

#[test]
fn a_socket_may_be_inherited_without_a_device() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let directory = namespace.run_directory().join("wireguard");
    std::fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("wg0.sock")).unwrap();
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut command = daemon(&namespace);
    command
        .arg("-f")
        .env("WG_UAPI_FD", listener.as_raw_fd().to_string());
    let output = run(&namespace, &mut command, b"set=1\n\n");
    assert_eq!(output.status.code(), Some(0));
    assert!(!directory.join("wg0.sock").exists());
}

fn daemon(namespace: &Namespace) -> Command {
    let mut command = namespace.command(convoy_program());
    command.arg("wg0");
    command
}

/// Starts a daemon in the foreground, sends it `requests` and ends it with SIGTERM.
fn run(namespace: &Namespace, command: &mut Command, requests: &[u8]) -> Output {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let socket = wait_for_socket(namespace);
    crate::twins::ask_at(&socket, &[b"get=1\n\n", requests].concat());
    kill(pid, Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!socket.exists(), "{output:?}");
    output
}

fn wait_for_end(namespace: &Namespace) {
    let socket = namespace.run_directory().join("wireguard/wg0.sock");
    let is_gone = eventually(DEADLINE, || (!socket.exists()).then_some(()));
    assert!(is_gone.is_some());
}
