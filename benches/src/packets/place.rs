//! Where datagrams go: namespaces with nothing else in them.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;

use anyhow::Context as _;
use convoy_lab::{Lab, Namespace};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};

use super::record::{PATHS, Path, Ports};

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The port of all senders that share one, and the sink's; no other program has them here.
const SHARED_PORT: u16 = 5181;
const SINK_PORT: u16 = 5182;

/// The namespaces; without root only the host's own loopback interface.
pub(super) struct Places(Option<(Lab, Namespace, Namespace)>);

impl Places {
    /// Makes the namespaces, as root.
    pub(super) fn make() -> anyhow::Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not root: only this host's loopback interface is measured, no veth");
            return Ok(Self(None));
        }
        let lab = Lab::new()?;
        let (left, right) = (lab.namespace("left")?, lab.namespace("right")?);
        let (a, b) = (format!("{LEFT}/24"), format!("{RIGHT}/24"));
        lab.veth(&left, "veth0", &[&a], &right, "veth0", &[&b], 1500)?;
        Ok(Self(Some((lab, left, right))))
    }

    pub(super) fn paths(&self) -> &'static [Path] {
        if self.0.is_some() {
            &PATHS
        } else {
            &PATHS[..1]
        }
    }

    /// Where datagrams are sent to.
    pub(super) fn target(path: Path) -> SocketAddrV4 {
        let address = match path {
            Path::Loopback => Ipv4Addr::LOCALHOST,
            Path::Veth => RIGHT,
        };
        SocketAddrV4::new(address, SINK_PORT)
    }

    /// A sender's socket, not connected.
    pub(super) fn sender(&self, path: Path, ports: Ports) -> anyhow::Result<UdpSocket> {
        let address = match path {
            Path::Loopback => Ipv4Addr::LOCALHOST,
            Path::Veth => LEFT,
        };
        let port = match ports {
            Ports::Own => 0,
            Ports::Shared => SHARED_PORT,
        };
        let left = self.0.as_ref().map(|(_, left, _)| left);
        inside(left, SocketAddrV4::new(address, port)).context("a sender's socket")
    }

    /// The sink's socket.
    pub(super) fn sink(&self, path: Path) -> anyhow::Result<UdpSocket> {
        let namespace = self.0.as_ref().map(|(_, left, right)| match path {
            Path::Loopback => left,
            Path::Veth => right,
        });
        inside(namespace, Self::target(path)).context("the sink's socket")
    }
}

/// A socket stays in the namespace in which it was opened.
fn inside(namespace: Option<&Namespace>, address: SocketAddrV4) -> anyhow::Result<UdpSocket> {
    let open = || -> nix::Result<UdpSocket> {
        let (family, kind) = (AddressFamily::Inet, SockType::Datagram);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(
            &socket,
            sockopt::ReusePort,
            &(address.port() == SHARED_PORT),
        )?;
        bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
        Ok(socket.into())
    };
    Ok(match namespace {
        Some(namespace) => namespace.run(open)??,
        None => open()?,
    })
}
