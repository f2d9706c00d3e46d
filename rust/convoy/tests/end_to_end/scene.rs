//! The scene of a test: a tunnel between two daemons, with no other test running beside it.

use std::{
    env, fs,
    ops::{Deref, DerefMut},
    path::PathBuf,
    process::Output,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use convoy_lab::{
    Lab, Namespace, require_programs, require_root_lab,
    wireguard::{Daemon, End, Implementation, Tunnel, TunnelOptions},
};

use crate::pairing::Program;
pub(crate) use crate::pairing::{Pairing, for_each_pairing};

/// How long to wait for anything that is expected to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A tunnel, its lab, and a lock that keeps other tests from running.
///
/// Prints the daemons' logs when the test fails.
pub(crate) struct Scene {
    tunnel: Tunnel,
    lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    pub(crate) fn new(pairing: Pairing) -> Option<Self> {
        Self::with(pairing, &TunnelOptions::default())
    }

    pub(crate) fn with(pairing: Pairing, options: &TunnelOptions) -> Option<Self> {
        let (left, right) = pairing.ends();
        let (lab, turn) = lab_with(&[left, right], &["wg", "ping"])?;
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
pub(crate) fn lab_with(
    daemons: &[Program],
    programs: &[&str],
) -> Option<(Lab, MutexGuard<'static, ()>)> {
    let daemons: Vec<_> = daemons.iter().map(|daemon| daemon.path()).collect();
    let daemons = daemons.iter().filter_map(|path| path.to_str());
    lab(&programs.iter().copied().chain(daemons).collect::<Vec<_>>())
}

/// A single daemon in its namespace, and a lock that keeps other tests from running.
pub(crate) struct Bed {
    pub(crate) daemon: Daemon,
    pub(crate) namespace: Namespace,
    _lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Bed {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    pub(crate) fn new() -> Option<Self> {
        let (lab, turn) = lab(&["wg"])?;
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

/// A lab for the current test and a lock that keeps other tests from running; `None` if the machine
/// cannot provide it.
pub(crate) fn lab(programs: &[&str]) -> Option<(Lab, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = thread::current();
    let test = thread.name().unwrap_or("test");
    let possible = require_root_lab(test) && require_programs(test, programs);
    possible.then(|| (Lab::new().unwrap(), turn))
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
