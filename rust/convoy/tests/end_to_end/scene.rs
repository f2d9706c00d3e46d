//! The scene of a test: a tunnel between two daemons, alone on the machine.

use std::{
    env,
    ops::{Deref, DerefMut},
    path::PathBuf,
    process::Output,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use convoy_lab::{
    Lab, Namespace, require_programs, require_root_lab,
    wireguard::{End, Implementation, Tunnel, TunnelOptions},
};

/// How long anything may take that is expected to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Who is at which end; the left end speaks first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pairing {
    ConvoyToConvoy,
    ConvoyToWireguardGo,
    WireguardGoToConvoy,
}

/// Makes of each function a module with one test a [`Pairing`].
macro_rules! for_each_pairing {
    ($($(#[doc = $doc:literal])* fn $name:ident($pairing:ident: Pairing) $body:block)*) => {$(
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all of its module")]
            use super::*;
            use $crate::scene::Pairing;

            fn test($pairing: Pairing) $body

            #[test]
            fn from_convoy_to_convoy() {
                test(Pairing::ConvoyToConvoy);
            }

            #[test]
            fn from_convoy_to_wireguard_go() {
                test(Pairing::ConvoyToWireguardGo);
            }

            #[test]
            fn from_wireguard_go_to_convoy() {
                test(Pairing::WireguardGoToConvoy);
            }
        }
    )*};
}
pub(crate) use for_each_pairing;

/// A tunnel, with the lab that it is in and the right to be the only one.
///
/// When the test fails, what the daemons wrote is shown.
pub(crate) struct Scene {
    tunnel: Tunnel,
    lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    /// `None` where there cannot be one: then the test is to be skipped.
    pub(crate) fn new(pairing: Pairing) -> Option<Self> {
        Self::with(pairing, &TunnelOptions::default())
    }

    pub(crate) fn with(pairing: Pairing, options: &TunnelOptions) -> Option<Self> {
        let (left, right) = match pairing {
            Pairing::ConvoyToConvoy => (convoy(), convoy()),
            Pairing::ConvoyToWireguardGo => (convoy(), wireguard_go()),
            Pairing::WireguardGoToConvoy => (wireguard_go(), convoy()),
        };
        let (lab, turn) = lab(&["wg", "ping", "wireguard-go"])?;
        let tunnel = Tunnel::new(&lab, &left, &right, options).unwrap();
        Some(Self {
            tunnel,
            lab,
            _turn: turn,
        })
    }

    /// For more namespaces beside the tunnel's two.
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
                .map_or("runs".to_owned(), |s| s.to_string());
            eprintln!(
                "--- {side} daemon ({end_of_daemon}) wrote:\n{}",
                end.daemon.log()
            );
        }
    }
}

/// A lab for the test that runs, and the right to be the only one; `None` where there cannot be.
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
    Implementation::new(convoy_program())
}

pub(crate) fn convoy_program() -> PathBuf {
    env::var_os("CONVOY_TEST_PROGRAM")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_convoy").into())
        .into()
}

pub(crate) fn wireguard_go() -> Implementation {
    Implementation::new("wireguard-go")
}

/// What a program inside wrote to its standard output; fails the test if the program fails.
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

/// One line of `wg show IFACE dump`, split; line 0 is the interface, line 1 the peer.
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
