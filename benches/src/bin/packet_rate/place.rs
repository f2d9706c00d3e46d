//! Where datagrams go: namespaces with nothing else in them.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use anyhow::Context as _;
use convoy_lab::{Lab, Namespace};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};

use crate::point::{PathKind, Ports};

const VETH: &str = "veth0";
const MTU: u32 = 1500;
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The port of all senders that share one.
const SHARED_PORT: u16 = 5181;
/// The sink's; where there is none, nobody else has it either.
const SINK_PORT: u16 = 5182;

/// The namespaces; without root only the host's own loopback interface.
pub(crate) struct Places {
    /// The namespaces die with it.
    lab: Option<(Lab, Namespace, Namespace)>,
}

impl Places {
    /// Makes the namespaces, as root; says what is left out otherwise.
    pub(crate) fn make() -> anyhow::Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not root: only this host's loopback interface is measured, no veth");
            return Ok(Self { lab: None });
        }
        let lab = Lab::new()?;
        let (left, right) = (lab.namespace("left")?, lab.namespace("right")?);
        let (a, b) = (format!("{LEFT}/24"), format!("{RIGHT}/24"));
        lab.veth(&left, VETH, &[&a], &right, VETH, &[&b], MTU)?;
        Ok(Self {
            lab: Some((lab, left, right)),
        })
    }

    /// The paths that there are.
    pub(crate) fn kinds(&self) -> Vec<PathKind> {
        let needs_lab = |kind: &PathKind| *kind == PathKind::Veth;
        let mut kinds = PathKind::ALL.to_vec();
        kinds.retain(|kind| self.lab.is_some() || !needs_lab(kind));
        kinds
    }

    /// Where datagrams are sent to.
    pub(crate) fn target(path: PathKind) -> SocketAddrV4 {
        let address = match path {
            PathKind::Loopback => Ipv4Addr::LOCALHOST,
            PathKind::Veth => RIGHT,
        };
        SocketAddrV4::new(address, SINK_PORT)
    }

    /// A sender's socket, not connected.
    pub(crate) fn sender(&self, path: PathKind, ports: Ports) -> anyhow::Result<UdpSocket> {
        let address = match path {
            PathKind::Loopback => Ipv4Addr::LOCALHOST,
            PathKind::Veth => LEFT,
        };
        let left = self.lab.as_ref().map(|(_, left, _)| left);
        let (port, shared) = match ports {
            Ports::Own => (0, false),
            Ports::Shared => (SHARED_PORT, true),
        };
        inside(left, SocketAddrV4::new(address, port), shared).context("a sender's socket")
    }

    /// The sink's socket.
    pub(crate) fn sink(&self, path: PathKind) -> anyhow::Result<UdpSocket> {
        let namespace = self.lab.as_ref().map(|(_, left, right)| match path {
            PathKind::Loopback => left,
            PathKind::Veth => right,
        });
        inside(namespace, Self::target(path), false).context("the sink's socket")
    }
}

/// A socket stays in the namespace in which it was opened.
fn inside(
    namespace: Option<&Namespace>,
    address: SocketAddrV4,
    shared: bool,
) -> anyhow::Result<UdpSocket> {
    let open = || bound(address, shared);
    Ok(match namespace {
        Some(namespace) => namespace.run(open)??,
        None => open()?,
    })
}

fn bound(address: SocketAddrV4, shared: bool) -> nix::Result<UdpSocket> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    setsockopt(&socket, sockopt::ReusePort, &shared)?;
    bind(
        std::os::fd::AsRawFd::as_raw_fd(&socket),
        &SockaddrIn::from(address),
    )?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_may_share_one_port() {
        let places = Places { lab: None };
        let sender = |ports| places.sender(PathKind::Loopback, ports).unwrap();
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let (one, another) = (sender(Ports::Shared), sender(Ports::Shared));
        assert_eq!(port(&one), port(&another));
        assert_ne!(port(&sender(Ports::Own)), port(&sender(Ports::Own)));
    }
}
