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

use anyhow::Result;
use convoy_lab::Namespace;
use convoy_lab::measure::Bed;

use super::contender::{Contender, Kind};
use crate::agent::{connect, set};
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
/// Removes the last contender's rules: they track connections, which costs whoever does not masquerade, too.
const REMOVE: &str = "add table ip bench; delete table ip bench";
const MASQUERADE: &str = "table ip bench {
    chain leaving { type nat hook postrouting priority srcnat; ip saddr 10.8.0.0/24 oifname != \"wg0\" masquerade; }
}";

/// The namespaces besides those of the tunnel.
pub(super) struct Gateway {
    host: Namespace,
    inside: Namespace,
    pub(super) server: Namespace,
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
        for peer in &mut bed.tunnel.left.config.peers {
            peer.persistent_keepalive = KEEPALIVE;
        }
        for peer in &mut bed.tunnel.right.config.peers {
            peer.allowed_ips.push(BEHIND.to_owned());
        }
        Ok(Self {
            host,
            inside,
            server,
        })
    }

    /// Routes what a new peer sends to the server, and makes the left end the place of the next gateway, with its rules
    /// and behind its user-mode network.
    pub(super) fn renew(&self, bed: &mut Bed, contender: &Contender) -> Result<Option<Started>> {
        for gateway in [&self.host, &self.inside] {
            set(gateway, "ipv4/ip_forward", "1")?;
            output(gateway.command(find("nft")).arg(REMOVE))?;
        }
        let (left, right) = (&mut bed.tunnel.left, &bed.tunnel.right);
        let link = right.namespace.link();
        link.add_route_through(BEHIND, left.inner_v4())?;
        left.namespace = self.host.clone();
        let mut network = None;
        if contender.kind == Kind::Network {
            network = Some(self.connect_inside(contender)?);
            left.namespace = self.inside.clone();
        }
        if contender.kind != Kind::Nat {
            output(left.namespace.command(find("nft")).arg(MASQUERADE))?;
        }
        Ok(network)
    }

    /// Connects the namespace inside to what the host reaches by a user-mode network.
    fn connect_inside(&self, contender: &Contender) -> Result<Started> {
        let mut command = self.host.command(&contender.program);
        let mut network = Started::new(command.args(contender.arguments.split(' ')))?;
        // The second field of the default route is zero.
        let routes = format!("/proc/{}/net/route", self.inside.pid());
        network.wait_until(|_| {
            fs::read_to_string(&routes).is_ok_and(|routes| routes.contains("\t00000000\t"))
        })?;
        Ok(network)
    }
}
