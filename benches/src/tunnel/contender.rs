//! The programs to compare, and how each is started.

use std::path::{Path, PathBuf};
use std::process::Command;

use convoy_lab::wireguard::Implementation;
use convoy_tun::TX_QUEUE_LEN;
use serde::{Deserialize, Serialize};

use super::rootless;
use crate::programs::find;

/// The contender that the others are compared with.
pub(crate) const CONVOY: &str = "convoy";
pub(crate) const EXEC: &str = "exec";
pub(crate) const PORTS: &str = "ports";
pub(crate) const PORTS_SMOLTCP: &str = "ports-smoltcp";
pub(crate) const WIREPROXY: &str = "wireproxy";
pub(crate) const ONETUN: &str = "onetun";
/// The veth without a tunnel.
pub(crate) const BARE: &str = "bare veth";
/// Suffix of a variant: the same program with Convoy's queue length on its interface.
const VARIANT: &str = "+q";

/// The WireGuard programs besides Convoy: name, program installed by `make peers`, arguments.
const PEERS: [(&str, &str, &[&str]); 4] = [
    ("wireguard-go", "wireguard", &[]),
    ("tailscale", "wireguard-tailscale", &[]),
    // These two look up the logged-in user, and exit if there is none.
    ("gotatun", "gotatun", &["--disable-drop-privileges"]),
    ("boringtun", "boringtun-cli", &["--disable-drop-privileges"]),
];
/// VPNs with another protocol: name, program as distributions name it, arguments.
const OPENVPNS: [(&str, &str, &[&str]); 2] = [
    ("openvpn", "openvpn", &["--disable-dco"]),
    // Kernel data channel, if the kernel supports it.
    ("openvpn-dco", "openvpn", &[]),
];
/// How a contender carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Without a tunnel.
    Bare,
    WireGuard,
    OpenVpn,
    /// Without root: the near end of the traffic runs inside.
    Exec,
    /// Without root: ports of the near end's loopback lead to the far end.
    Ports,
    /// Without root: a SOCKS5 proxy on the near end's loopback.
    Socks,
}

/// A program with its settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Set on the interface after the start; `None` keeps the program's own.
    pub(crate) queue_length: Option<u32>,
    pub(crate) version: Option<String>,
}

/// Convoy; each peer with its defaults and again with Convoy's queue length; and OpenVPN.
pub(crate) fn all(convoy: &Path, peers: &Path) -> Vec<Contender> {
    let convoy = Contender::wireguard(CONVOY, convoy);
    let peers = PEERS.iter().flat_map(|&(name, program, arguments)| {
        let default = Contender {
            arguments: owned(arguments),
            ..Contender::wireguard(name, &peers.join(program))
        };
        let variant = Contender {
            name: format!("{name}{VARIANT}"),
            queue_length: Some(TX_QUEUE_LEN),
            ..default.clone()
        };
        [default, variant]
    });
    let openvpns = OPENVPNS.map(|(name, program, arguments)| Contender {
        kind: Kind::OpenVpn,
        arguments: owned(arguments),
        ..Contender::wireguard(name, &find(program))
    });
    std::iter::once(convoy)
        .chain(peers)
        .chain(openvpns)
        .collect()
}

/// Convoy in TUN mode, and programs that need no root: Convoy's own ways, and others.
pub(crate) fn rootless(convoy: &Path, peers: &Path) -> Vec<Contender> {
    let others = |program: &str| {
        let newest = peers.join(program);
        if newest.is_file() {
            newest
        } else {
            find(program)
        }
    };
    let contender = |name: &str, kind, program: &Path, arguments| Contender {
        kind,
        arguments,
        ..Contender::wireguard(name, program)
    };
    let (wireproxy, onetun) = (others(WIREPROXY), others(ONETUN));
    vec![
        Contender::wireguard(CONVOY, convoy),
        contender(
            EXEC,
            Kind::Exec,
            convoy,
            owned(&["exec", rootless::FILE, "--"]),
        ),
        contender(PORTS, Kind::Ports, convoy, rootless::up("namespace")),
        contender(PORTS_SMOLTCP, Kind::Ports, convoy, rootless::up("smoltcp")),
        contender("socks5", Kind::Socks, convoy, rootless::up("namespace")),
        contender(
            WIREPROXY,
            Kind::Ports,
            &wireproxy,
            owned(&["--config", rootless::FILE]),
        ),
        contender(
            "wireproxy-socks5",
            Kind::Socks,
            &wireproxy,
            owned(&["--config", rootless::FILE]),
        ),
        contender(ONETUN, Kind::Ports, &onetun, rootless::onetun()),
    ]
}

/// wireguard-go in the directory of `make peers`, or else in `PATH`.
pub(crate) fn wireguard_go(peers: &Path) -> Contender {
    let (name, program, _) = PEERS[0];
    let newest = peers.join(program);
    let program = if newest.is_file() { newest } else { find(name) };
    Contender::wireguard(name, &program)
}

impl Kind {
    /// Whether it takes the place of a daemon at the near end.
    pub(crate) fn is_rootless(self) -> bool {
        matches!(self, Self::Exec | Self::Ports | Self::Socks)
    }
}

impl Contender {
    /// A program with the command line of `wireguard-go`.
    pub(crate) fn wireguard(name: &str, program: &Path) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::WireGuard,
            program: program.to_owned(),
            arguments: Vec::new(),
            queue_length: None,
            version: None,
        }
    }

    /// The veth without a tunnel.
    pub(crate) fn bare() -> Self {
        Self {
            kind: Kind::Bare,
            ..Self::wireguard(BARE, Path::new(""))
        }
    }

    pub(crate) fn is_variant(&self) -> bool {
        self.name.ends_with(VARIANT)
    }

    pub(crate) fn implementation(&self) -> Implementation {
        let program = Implementation::new(&self.program);
        self.arguments
            .iter()
            .fold(program, Implementation::argument)
    }

    /// Adds the version; for a Go program that of its module, since a fork prints the original's.
    pub(crate) fn with_version(mut self) -> Self {
        // OpenVPN prints its version but exits with an error.
        let printed = |command: &mut Command| {
            let output = command.output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let mut go = Command::new("go");
        let modules = printed(go.args(["version", "-m"]).arg(&self.program));
        let module = modules.and_then(|modules| {
            let mut lines = modules.lines();
            let line = lines.find_map(|line| line.trim().strip_prefix("mod\t"));
            let words: Vec<_> = line?.split('\t').take(2).collect();
            Some(words.join(" "))
        });
        let versions = || printed(Command::new(&self.program).arg("--version"));
        let first = || versions()?.lines().next().map(str::to_owned);
        self.version = module.or_else(first);
        self
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&one| one.to_owned()).collect()
}
