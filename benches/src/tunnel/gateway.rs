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
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::measure::{self, Bed, Ends};
use convoy_lab::traffic::Agent;
use convoy_lab::wireguard::Implementation;
use convoy_lab::{Namespace, Pid, eventually};

use super::rootless::{self, wait_until_up};
use super::{Contender, Kind};
use crate::programs::{find, output};

pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2));
const BEHIND: &str = "10.99.0.0/24";
const HOST_CIDR: &str = "10.99.0.1/24";
const SERVER_CIDR: &str = "10.99.0.2/24";
/// The host's interface to the server.
const VETH: &str = "veth1";
const ETHERNET: u32 = 1_500;
/// The namespace inside, where programs that have given up their capabilities can open it.
const INSIDE: &str = "/var/run/inside";
/// Lets a gateway behind a user-mode network call its peer, which could not call it.
const KEEPALIVE: u16 = 25;
/// How long a user-mode network may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);
const MASQUERADE: &str = "echo 1 > /proc/sys/net/ipv4/ip_forward
exec \"$0\" 'table ip bench {
    chain leaving { type nat hook postrouting priority srcnat; ip saddr 10.8.0.0/24 oifname != \"wg0\" masquerade; }
}'";

/// The arguments of Convoy with NAT by this engine.
pub(super) fn nat(engine: &str) -> Vec<String> {
    let up = rootless::userspace(engine);
    // Targets on the gateway's own links are forbidden by default.
    words(&format!("{up} --nat user --nat-allow {BEHIND}"))
}

/// The arguments of pasta, with the addresses that slirp4netns has.
pub(super) fn pasta() -> Vec<String> {
    let outside = format!("--foreground --quiet --runas 0 --ipv4-only --interface {VETH}");
    let inside =
        "--config-net --ns-ifname tap0 --address 10.0.2.100 --netmask 24 --gateway 10.0.2.2";
    let closed = "--tcp-ports none --udp-ports none --tcp-ns none --udp-ns none";
    let netns = format!("--netns-only --netns {INSIDE}");
    words(&[&outside, inside, closed, &netns].join(" "))
}

/// The arguments of slirp4netns, with the MTU that pasta has by default.
pub(super) fn slirp4netns() -> Vec<String> {
    words(&format!(
        "--configure --mtu 65520 --disable-dns --netns-type path {INSIDE} tap0"
    ))
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// The namespaces besides those of the tunnel, and a user-mode network.
pub(super) struct Gateway {
    host: Namespace,
    inside: Namespace,
    server: Namespace,
    network: Option<Network>,
}

/// A running program; killed when dropped.
struct Network(Child);

impl Gateway {
    /// Adds the namespaces, and lets the peer reach the server through the tunnel.
    pub(super) fn new(bed: &mut Bed) -> anyhow::Result<Self> {
        let host = bed.tunnel.left.namespace.clone();
        let lab = bed.lab();
        let (server, inside) = (lab.namespace("server")?, lab.namespace("inside")?);
        lab.veth(
            &host,
            VETH,
            &[HOST_CIDR],
            &server,
            "veth0",
            &[SERVER_CIDR],
            ETHERNET,
        )?;
        for gateway in [&host, &inside] {
            let mut shell = gateway.command("sh");
            output(shell.args(["-c", MASQUERADE]).arg(find("nft")))?;
        }
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
        Ok(Self {
            host,
            inside,
            server,
            network: None,
        })
    }

    /// Starts a new peer, for a gateway that starts next; returns where its agents and that of the server are.
    pub(super) fn renew_peer(
        &mut self,
        bed: &mut Bed,
        convoy: &Implementation,
    ) -> anyhow::Result<[Namespace; 2]> {
        self.network = None;
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
    ) -> anyhow::Result<()> {
        let [peer, server] = self.renew_peer(bed, convoy)?;
        if contender.kind == Kind::Network {
            self.network = Some(Network::start(contender, &self.host, &self.inside)?);
            bed.tunnel.left.namespace = self.inside.clone();
        }
        bed.tunnel.left.replace_daemon(convoy)?;
        let agent = |place| Agent::spawn(crate::agent::agent(place));
        bed.ends = Ends::new(agent(&peer)?, agent(&peer)?, agent(&server)?)?;
        let Bed { ends, tunnel, .. } = bed;
        wait_until_up(ends, SERVER, || {
            self.check()?;
            Ok(measure::check(tunnel)?)
        })
    }

    /// Fails if the user-mode network has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.network.as_mut().map_or(Ok(()), Network::check)
    }

    /// The user-mode network.
    pub(super) fn pid(&self) -> Option<Pid> {
        // Process numbers are below 2²² (PID_MAX_LIMIT).
        let network = self.network.as_ref();
        network.map(|network| Pid::from_raw(network.0.id().cast_signed()))
    }
}

impl Network {
    /// Connects `inside` to what `host` reaches.
    fn start(contender: &Contender, host: &Namespace, inside: &Namespace) -> anyhow::Result<Self> {
        let mut command = host.command(&contender.program);
        command.args(&contender.arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut network = Self(command.spawn().context("start it")?);
        // The second field of the default route is zero.
        let routes = format!("/proc/{}/net/route", inside.pid());
        let has_route = || {
            let routes = fs::read_to_string(&routes).unwrap_or_default();
            let is_up = routes.contains("\t00000000\t");
            (is_up || network.check().is_err()).then_some(())
        };
        eventually(PATIENCE, has_route).context("it configures no network")?;
        network.check()?;
        Ok(network)
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.0.try_wait()?;
        ensure!(ended.is_none(), "the user-mode network has ended");
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
