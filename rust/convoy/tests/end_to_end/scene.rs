//! The scene of a test: a tunnel between two daemons, and the test's turn to run.

use std::{
    env, fs,
    ops::{Deref, DerefMut},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Output,
    thread,
    time::Duration,
};

use convoy_lab::{
    Lab, Namespace, Pid, Turn, eventually, require_programs, require_root_lab,
    wireguard::{Daemon, End, Implementation, Tunnel, TunnelOptions},
};

use crate::pairing::Program;
pub(crate) use crate::pairing::{Pairing, for_each_pairing};

/// How long to wait for anything that is expected to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A tunnel, its lab, and the test's turn to run.
///
/// Prints the daemons' logs when the test fails.
pub(crate) struct Scene {
    tunnel: Tunnel,
    lab: Lab,
    _turn: Turn,
}

impl Scene {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    pub(crate) fn new(pairing: Pairing) -> Option<Self> {
        Self::with(pairing, &TunnelOptions::default())
    }

    pub(crate) fn with(pairing: Pairing, options: &TunnelOptions) -> Option<Self> {
        let (left, right) = pairing.ends();
        let (turn, lab) = lab_with(&[left, right], &["wg", "ping"])?;
        let (left, right) = (left.implementation(), right.implementation());
        let tunnel = Tunnel::new(&lab, &left, &right, options).unwrap();
        Some(Self {
            tunnel,
            lab,
            _turn: turn,
        })
    }

    /// For namespaces besides the tunnel's two.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }
}

impl Deref for Scene {
    type Target = Tunnel;

    fn deref(&self) -> &Tunnel {
        &self.tunnel
    }
}

impl DerefMut for Scene {
    fn deref_mut(&mut self) -> &mut Tunnel {
        &mut self.tunnel
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for (side, end) in [
            ("left", &mut self.tunnel.left),
            ("right", &mut self.tunnel.right),
        ] {
            let end_of_daemon = end
                .daemon
                .ended()
                .map_or("running".to_owned(), |s| s.to_string());
            eprintln!(
                "--- {side} daemon ({end_of_daemon}) wrote:\n{}",
                end.daemon.log()
            );
        }
    }
}

/// Like [`lab`], for a test that also needs these daemons.
pub(crate) fn lab_with(daemons: &[Program], programs: &[&str]) -> Option<(Turn, Lab)> {
    let daemons: Vec<_> = daemons.iter().map(|daemon| daemon.path()).collect();
    let daemons = daemons.iter().filter_map(|path| path.to_str());
    lab(&programs.iter().copied().chain(daemons).collect::<Vec<_>>())
}

/// A single daemon in its namespace, and the test's turn to run.
pub(crate) struct Bed {
    pub(crate) daemon: Daemon,
    pub(crate) namespace: Namespace,
    _lab: Lab,
    _turn: Turn,
}

impl Bed {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    pub(crate) fn new() -> Option<Self> {
        let (turn, lab) = lab(&["wg"])?;
        let namespace = lab.namespace("left").unwrap();
        Some(Self {
            daemon: Daemon::start(&namespace, &convoy(), "wg0").unwrap(),
            namespace,
            _lab: lab,
            _turn: turn,
        })
    }

    /// The daemon's resident memory (VmRSS) in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.unwrap().split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }
}

/// A lab for the current test, and its turn to run; `None` if the machine cannot provide it.
pub(crate) fn lab(programs: &[&str]) -> Option<(Turn, Lab)> {
    let turn = Turn::together();
    let thread = thread::current();
    let test = thread.name().unwrap_or("test");
    let possible = require_root_lab(test) && require_programs(test, programs);
    possible.then(|| (turn, Lab::new().unwrap()))
}

/// The program under test.
pub(crate) fn convoy() -> Implementation {
    Program::Convoy.implementation()
}

pub(crate) fn convoy_program() -> PathBuf {
    env::var_os("CONVOY_TEST_PROGRAM")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_convoy").into())
        .into()
}

pub(crate) fn wireguard_go() -> Implementation {
    Program::WireguardGo.implementation()
}

/// Runs a program in the namespace and returns its standard output; fails the test if it fails.
pub(crate) fn output_of(
    namespace: &Namespace,
    program: impl AsRef<std::ffi::OsStr>,
    arguments: &[&str],
) -> String {
    let output = namespace
        .command(&program)
        .args(arguments)
        .output()
        .unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let stdout = String::from_utf8(stdout).unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    let program = program.as_ref().display();
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}\n{stdout}{stderr}"
    );
    stdout
}

/// Processes in the namespace other than its holder.
pub(crate) fn processes(namespace: &Namespace) -> Vec<Pid> {
    let network = |pid: Pid| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let holder = namespace.pid();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|&pid| pid != holder && network(pid) == network(holder))
        .collect()
}

/// Waits until a daemon in the namespace answers for `wg0`, and returns its socket.
pub(crate) fn wait_for_socket(namespace: &Namespace) -> PathBuf {
    let socket = namespace.run_directory().join("wireguard/wg0.sock");
    let answers = || UnixStream::connect(&socket).is_ok().then_some(());
    assert!(eventually(DEADLINE, answers).is_some());
    socket
}

/// The fields of one line of `wg show IFACE dump`; line 0 is the interface, line 1 the peer.
pub(crate) fn wg_dump(end: &End, line: usize) -> Vec<String> {
    let dump = output_of(
        &end.namespace,
        "wg",
        &["show", end.daemon.interface(), "dump"],
    );
    dump.lines()
        .nth(line)
        .unwrap()
        .split('\t')
        .map(str::to_owned)
        .collect()
}
