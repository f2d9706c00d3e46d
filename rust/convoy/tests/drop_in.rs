//! The program in place of `wireguard-go`: start, control and every way to end.
//!
//! Each test runs itself again in namespaces of its own (network, mounts, processes) with an empty
//! /var/run, so that nothing is left behind, however it ends. Needs root; without, it says so and passes.

use std::{
    env, fs,
    io::{Read, Write},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    net::if_::{InterfaceFlags, if_nametoindex},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const SOCKET: &str = "/var/run/wireguard/wg0.sock";

#[test]
fn the_caller_returns_once_the_interface_can_be_configured() {
    in_namespaces(
        "the_caller_returns_once_the_interface_can_be_configured",
        || {
            assert_success(&convoy().arg("wg0").output().unwrap());
            let flags = link_flags("wg0");
            assert!(!flags.contains(InterfaceFlags::IFF_UP), "{flags:?}");
            assert_eq!(ask("set=1\nlisten_port=5555\n\n"), "errno=0\n\n");
            assert!(ask("get=1\n\n").contains("listen_port=5555\n"));
        },
    );
}

#[test]
fn deleting_the_interface_ends_it() {
    in_namespaces("deleting_the_interface_ends_it", || {
        let daemon = foreground();
        run("ip", &["link", "delete", "wg0"]);
        assert_clean_end(daemon);
    });
}

#[test]
fn sigterm_and_sigint_end_it() {
    in_namespaces("sigterm_and_sigint_end_it", || {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let daemon = foreground();
            kill(Pid::from_raw(daemon.id().cast_signed()), signal).unwrap();
            assert_clean_end(daemon);
        }
    });
}

#[test]
fn removing_the_socket_ends_it() {
    in_namespaces("removing_the_socket_ends_it", || {
        let daemon = foreground();
        fs::remove_file(SOCKET).unwrap();
        assert_clean_end(daemon);
    });
}

#[test]
fn a_second_daemon_for_an_interface_is_refused() {
    in_namespaces("a_second_daemon_for_an_interface_is_refused", || {
        let _first = foreground();
        let second = convoy().arg("wg0").output().unwrap();
        assert_eq!(second.status.code(), Some(1));
        let said = String::from_utf8(second.stderr).unwrap();
        assert!(said.contains("already in use"), "{said}");
        assert!(ask("get=1\n\n").ends_with("errno=0\n\n"));
    });
}

#[test]
fn the_socket_of_a_killed_daemon_is_replaced() {
    in_namespaces("the_socket_of_a_killed_daemon_is_replaced", || {
        let mut killed = foreground();
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(Path::new(SOCKET).exists());
        assert_success(&convoy().arg("wg0").output().unwrap());
        assert!(ask("get=1\n\n").ends_with("errno=0\n\n"));
    });
}

#[test]
fn the_caller_hears_why_there_is_no_daemon() {
    in_namespaces("the_caller_hears_why_there_is_no_daemon", || {
        let output = convoy().arg("lo").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("convoy: "), "{said}");
        assert!(!Path::new("/var/run/wireguard/lo.sock").exists());
    });
}

#[test]
fn inherited_descriptors_are_used() {
    in_namespaces("inherited_descriptors_are_used", || {
        fs::create_dir_all("/var/run/wireguard").unwrap();
        let listener = UnixListener::bind(SOCKET).unwrap();
        let tun = open_tun("wg0");
        for fd in [tun.as_raw_fd(), listener.as_raw_fd()] {
            // SAFETY: both are open for longer than this borrow.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        }
        let output = convoy()
            .arg("another-name")
            .env("WG_TUN_FD", tun.as_raw_fd().to_string())
            .env("WG_UAPI_FD", listener.as_raw_fd().to_string())
            .output()
            .unwrap();
        drop((tun, listener));
        assert_success(&output);
        let stats = convoy().args(["stats", "wg0", "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
        assert_eq!(json["interface"], "wg0");
    });
}

#[test]
fn every_line_of_a_json_log_is_an_object() {
    in_namespaces("every_line_of_a_json_log_is_an_object", || {
        let mut daemon = foreground();
        assert_eq!(ask("set=1\nnonsense\n\n"), "errno=-71\n\n");
        kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM).unwrap();
        let mut log = String::new();
        let mut stdout = daemon.stdout.take().unwrap();
        stdout.read_to_string(&mut log).unwrap();
        daemon.wait().unwrap();
        assert!(log.lines().count() >= 3, "{log}");
        for line in log.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in ["time", "severity", "message"] {
                assert!(line[key].is_string(), "{line}");
            }
        }
    });
}

#[test]
fn no_core_is_dumped() {
    in_namespaces("no_core_is_dumped", || {
        let daemon = foreground();
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.id())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core"));
        let fields: Vec<_> = core.unwrap().split_whitespace().collect();
        assert_eq!(fields[4..6], ["0", "0"], "{limits}");
    });
}

/// Runs the test `name` again, within namespaces, where it runs `body`.
fn in_namespaces(name: &str, body: impl FnOnce()) {
    const WITHIN: &str = "CONVOY_TEST_WITHIN_NAMESPACES";
    if env::var_os(WITHIN).is_some() {
        run("mount", &["-t", "tmpfs", "tmpfs", "/var/run"]);
        return body();
    }
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: {name} needs root");
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .arg("--mount-proc")
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WITHIN, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_success(&output);
}

/// The program, with nothing of the caller's environment that it would heed.
fn convoy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let heeded = ["CONVOY_", "WG_", "LOG_LEVEL", "RUST_LOG"];
        if heeded.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// A daemon in the foreground that is ready.
fn foreground() -> Child {
    let mut command = convoy();
    command.args(["-f", "--log-format", "json", "wg0"]);
    let daemon = command.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the daemon answers", || UnixStream::connect(SOCKET).is_ok());
    ask("get=1\n\n");
    daemon
}

fn assert_clean_end(mut daemon: Child) {
    let mut status = None;
    wait_until("the daemon ends", || {
        status = daemon.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(!Path::new(SOCKET).exists());
    if_nametoindex("wg0").unwrap_err();
}

fn ask(request: &str) -> String {
    let mut stream = UnixStream::connect(SOCKET).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn link_flags(name: &str) -> InterfaceFlags {
    let mut links = nix::ifaddrs::getifaddrs().unwrap();
    links
        .find(|link| link.interface_name == name)
        .unwrap()
        .flags
}

/// A TUN as another program would hand it over.
fn open_tun(name: &str) -> fs::File {
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: all zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one ifreq.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    file
}

fn run(program: &str, args: &[&str]) {
    assert_success(&Command::new(program).args(args).output().unwrap());
}

fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
