//! Gateways at the near end: what a peer at the far end sends to a server goes on from there.
//!
//! ```text
//!    right            left                                    server
//!    agents           gateway                                 agent
//!    wg0 Convoy ═════ tunnel, NAT ────────── veth ─────────── 10.99.0.2
//!    wg0 Convoy ═════ user-mode network ──── veth ─────────── 10.99.0.2
//!                       │ inside
//!                     tunnel, masquerading
//! ```
//!
//! The gateway is Convoy in TUN mode beside the kernel's masquerading, or Convoy's own NAT. Behind a user-mode network,
//! the former runs inside, so that flows of peers leave as sockets of that program; so do the datagrams of the tunnel.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use convoy_lab::measure::{self, Bed};
use convoy_lab::wireguard::Implementation;
use convoy_lab::{Namespace, Pid};

use super::contender::{Contender, Kind};
use super::rootless::wait_until_up;
use crate::agent::{connect, ends};
use crate::programs::{Started, find, output};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const BEHIND: &str = "10.99.0.0/24";
/// The host's interface to the server.
const VETH: &str = "veth1";
/// The namespace inside, as [`super::contender`] names it: where programs that have given up their capabilities can open it.
const INSIDE: &str = "/var/run/inside";
/// Lets a gateway behind a user-mode network call its peer, which could not call it.
const KEEPALIVE: u16 = 25;
/// Time limit for a user-mode network to come up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Removes the last contender's rules as well: they track connections, which costs whoever does not masquerade, too.
const FORWARD: &str = "echo 1 > /proc/sys/net/ipv4/ip_forward
exec \"$0\" 'add table ip bench; delete table ip bench'";
const MASQUERADE: &str = "table ip bench {
    chain leaving { type nat hook postrouting priority srcnat; ip saddr 10.8.0.0/24 oifname != \"wg0\" masquerade; }
}";

/// The namespaces besides those of the tunnel, and a user-mode network.
pub(super) struct Gateway {
    host: Namespace,
    inside: Namespace,
    server: Namespace,
    network: Option<Started>,
}

impl Gateway {
    /// Adds the namespaces, and lets the peer reach the server through the tunnel.
    pub(super) fn new(bed: &mut Bed) -> Result<Self> {
        let host = bed.tunnel.left.namespace.clone();
        let lab = bed.lab();
        let (server, inside) = (lab.namespace("server")?, lab.namespace("inside")?);
        connect(lab, (&host, VETH, HOST), (&server, "veth0", SERVER))?;
        let bind = format!("touch {INSIDE} && exec mount --bind /proc/$0/ns/net {INSIDE}");
        let mut shell = host.command("sh");
        output(shell.args(["-c", &bind, &inside.pid().to_string()]))?;
        let (left, right) = (&mut bed.tunnel.left, &mut bed.tunnel.right);
        for peer in &mut left.config.peers {
            peer.persistent_keepalive = KEEPALIVE;
        }
        for peer in &mut right.config.peers {
            peer.allowed_ips.push(BEHIND.to_owned());
        }
        let network = None;
        Ok(Self {
            host,
            inside,
            server,
            network,
        })
    }

    /// Starts a new peer for the next gateway, which has no rules yet; returns where the agents of both ends are.
    pub(super) fn renew_peer(
        &mut self,
        bed: &mut Bed,
        convoy: &Implementation,
    ) -> Result<[Namespace; 2]> {
        self.network = None;
        for gateway in [&self.host, &self.inside] {
            let mut shell = gateway.command("sh");
            output(shell.args(["-c", FORWARD]).arg(find("nft")))?;
        }
        bed.tunnel.left.kill_daemon()?;
        bed.tunnel.left.namespace = self.host.clone();
        let (left, right) = (bed.tunnel.left.inner_v4(), &mut bed.tunnel.right);
        right.replace_daemon(convoy)?;
        right.namespace.link().add_route_through(BEHIND, left)?;
        Ok([right.namespace.clone(), self.server.clone()])
    }

    /// Starts Convoy in TUN mode as the gateway, and waits until the peer reaches the server.
    pub(super) fn start(
        &mut self,
        bed: &mut Bed,
        contender: &Contender,
        convoy: &Implementation,
    ) -> Result<()> {
        let [peer, server] = self.renew_peer(bed, convoy)?;
        if contender.kind == Kind::Network {
            self.network = Some(start(contender, &self.host, &self.inside)?);
            bed.tunnel.left.namespace = self.inside.clone();
        }
        let gateway = &bed.tunnel.left.namespace;
        output(gateway.command(find("nft")).arg(MASQUERADE))?;
        bed.tunnel.left.replace_daemon(convoy)?;
        bed.ends = ends(&peer, &server)?;
        let Bed { ends, tunnel, .. } = bed;
        wait_until_up(ends, SERVER.into(), || {
            self.check()?;
            Ok(measure::check(tunnel)?)
        })
    }

    /// Fails if the user-mode network has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        self.network.as_mut().map_or(Ok(()), Started::check)
    }

    /// The user-mode network.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.network.as_ref().map(Started::pid)
    }
}

/// Connects `inside` to what `host` reaches by a user-mode network.
fn start(contender: &Contender, host: &Namespace, inside: &Namespace) -> Result<Started> {
    let mut command = host.command(&contender.program);
    let mut network = Started::new(command.args(contender.arguments.split(' ')))?;
    // The second field of the default route is zero.
    let routes = format!("/proc/{}/net/route", inside.pid());
    let has_route = |_: &Started| {
        fs::read_to_string(&routes).is_ok_and(|routes| routes.contains("\t00000000\t"))
    };
    network.wait_until(PATIENCE, has_route)?;
    Ok(network)
}
