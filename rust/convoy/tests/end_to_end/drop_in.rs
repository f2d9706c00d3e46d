//! Behaviour on which scripts and supervisors written for `wireguard-go` rely.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixListener,
    },
};

use convoy_lab::{eventually, wireguard::Daemon};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::signal::Signal,
};
use serde_json::Value;

use crate::scene::{DEADLINE, convoy, convoy_program, lab, output_of};

#[test]
fn the_link_is_left_down_with_the_references_mtu() {
    let Some((_turn, lab)) = lab(&["ip"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    output_of(&namespace, convoy_program(), &["wg0"]);
    let link = output_of(&namespace, "ip", &["link", "show", "wg0"]);
    assert!(link.contains("state DOWN"), "{link}");
    assert!(link.contains("mtu 1420"), "{link}");
}

#[test]
fn a_failed_start_is_reported_to_the_caller() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let mut command = namespace.command(convoy_program());
    let output = command.arg("lo").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("convoy: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let socket = namespace.run_directory().join("wireguard/lo.sock");
    assert!(!socket.exists());
}

#[test]
fn a_second_daemon_reports_that_the_first_one_is_running() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let _first = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    let mut second = namespace.command(convoy_program());
    let said = second.arg("wg0").output().unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("already in use"), "{said}");
}

#[test]
fn inherited_descriptors_are_used() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let directory = namespace.run_directory().join("wireguard");
    fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join("wg0.sock")).unwrap();
    let tun = namespace.run(|| open_tun("wg0")).unwrap().unwrap();
    for fd in [tun.as_fd(), listener.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    }
    let output = namespace
        .command(convoy_program())
        .arg("another-name")
        .env("WG_TUN_FD", tun.as_raw_fd().to_string())
        .env("WG_UAPI_FD", listener.as_raw_fd().to_string())
        .output()
        .unwrap();
    drop((tun, listener));
    assert!(output.status.success(), "{output:?}");
    let stats = output_of(&namespace, convoy_program(), &["stats", "wg0", "--json"]);
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["interface"], "wg0");
}

#[test]
fn every_line_of_a_json_log_is_an_object() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let convoy = convoy().argument("--log-format").argument("json");
    let mut daemon = Daemon::start(&namespace, &convoy, "wg0").unwrap();
    daemon.request("set=1\nnonsense\n\n").unwrap();
    daemon.signal(Signal::SIGTERM).unwrap();
    daemon.wait().unwrap();
    let log = daemon.log();
    assert!(log.lines().count() >= 3, "{log}");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for key in ["time", "severity", "message"] {
            assert!(line[key].is_string(), "{line}");
        }
    }
}

/// A script uses both in its next line, as soon as the command has returned.
#[test]
fn the_interface_and_the_socket_are_usable_once_the_command_returns() {
    let Some((_turn, lab)) = lab(&["ip", "wg"]) else {
        return;
    };
    let (left, right) = (
        lab.namespace("left").unwrap(),
        lab.namespace("right").unwrap(),
    );
    let socket = left.run_directory().join("wireguard/wg0.sock");
    let program = convoy_program();
    let elsewhere = format!("ip link set dev wg0 netns {}", right.pid());
    let actions = [
        (&left, "new0", "ip link set dev wg0 name new0"),
        (&right, "wg0", &elsewhere),
        (&left, "wg0", "wg set wg0 listen-port 51820 fwmark 7"),
        (
            &left,
            "wg0",
            "ip link set up dev wg0 && ip address add 10.8.0.1/24 dev wg0",
        ),
        (&left, "wg0", "ip link set wg0 mtu 1280"),
    ];
    for _ in 0..6 {
        for (namespace, name, action) in actions {
            let line = format!(
                "{} wg0 && {action} && wg show wg0 listen-port",
                program.display()
            );
            output_of(&left, "sh", &["-c", &line]);
            assert!(namespace.link().exists(name), "{action}");
            namespace.link().remove(name).unwrap();
            let is_gone = eventually(DEADLINE, || (!socket.exists()).then_some(()));
            assert!(
                is_gone.is_some(),
                "the daemon is still running after: {action}"
            );
        }
    }
}

#[test]
fn no_core_is_dumped() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let daemon = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core"));
    let fields: Vec<_> = core.unwrap().split_whitespace().collect();
    // A limit of 1 byte also stops dumps piped to a program (core(5)); 0 does not.
    assert_eq!(fields[4..6], ["1", "1"], "{limits}");
    let kept = fs::read_to_string(format!("/proc/{}/coredump_filter", daemon.pid())).unwrap();
    assert_eq!(kept.trim(), "00000000");
}

/// Opens a TUN device as another program would before handing it over.
pub(crate) fn open_tun(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one ifreq.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) };
    match outcome {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
