//! Ways from one client to another: straight, by a hub, straight with the hub's help, and by a TURN server.
//!
//! ```text
//!    left: agents                                  right: agent
//!    wg0 convoy up ── veth0 ────────── veth0 ── convoy up wg0
//!            └─────── hub0 ── hub ── hub0 ───────────┘
//!                         coturn
//! ```
//!
//! The hub's machine forwards what comes out of its tunnel, and nothing between its cables. So a client that knows only
//! the address of its peer there needs the TURN server.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use anyhow::{Context as _, Result};
use convoy_lab::Namespace;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::{End, Identity, Implementation};
use serde_json::Value;

use super::contender::Contender;
use crate::agent::{TUNNEL, TUNNEL_MTU, connect, set};
use crate::programs::{Started, find, output};

/// The interface of each client to the hub.
const CABLE: &str = "hub0";
/// The hub's addresses on the cables to the left and to the right client, and theirs.
const AT_HUB: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 10, 1, 3), Ipv4Addr::new(10, 10, 2, 3)];
const AT_CLIENTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 10, 1, 1), Ipv4Addr::new(10, 10, 2, 2)];
/// Network of the right client's cable.
const BEYOND: &str = "10.10.2.0/24";
/// Number of the hub; the clients have 1 and 2.
const HUB: u8 = 3;
const TURN_PORT: u16 = 3478;
/// The TURN server's address, which its certificate names.
pub(super) const SERVER: &str = "10.10.1.3";
/// For UDP, TCP and TLS.
const TURN: &str = "-n --no-cli --lt-cred-mech --realm=bench --log-file=stdout --pidfile=/run/turnserver.pid \
    --user=bench:correct-horse --listening-ip=10.10.1.3 --relay-ip=10.10.2.3 --cert={directory}/certificate \
    --pkey={directory}/key";
pub(super) const PASSWORD: &str = "correct-horse\n";

/// The hub and the TURN server.
pub(super) struct Paths {
    hub: End,
    /// Started for the first contender that needs it.
    turn: Option<Started>,
}

impl Paths {
    /// Adds the hub.
    pub(super) fn new(bed: &Bed, convoy: &Implementation) -> Result<Self> {
        let lab = bed.lab();
        let place = lab.namespace("hub")?;
        let ends = [(&bed.tunnel.left, 0, 1), (&bed.tunnel.right, 1, 2)];
        let mut peers = Vec::new();
        for (end, at, number) in ends {
            let near = (&end.namespace, CABLE, AT_CLIENTS[at]);
            connect(lab, near, (&place, end.namespace.label(), AT_HUB[at]))?;
            let keys = end.keys.clone();
            peers.push(Identity { keys, number }.as_peer(None));
        }
        let link = bed.tunnel.left.namespace.link();
        link.add_route_through(BEYOND, AT_HUB[0].into())?;
        let hub = End::start(&place, convoy, &Identity::new(HUB), peers, TUNNEL_MTU)?;
        set(&place, &format!("ipv4/conf/{TUNNEL}/forwarding"), "1")?;
        Ok(Self { hub, turn: None })
    }

    /// Starts the TURN server if `contender` needs it; `directory` holds its certificate and key.
    pub(super) fn serve(&mut self, contender: &Contender, directory: &Path) -> Result<()> {
        if self.turn.is_some() || !contender.file.contains("{turn}") {
            return Ok(());
        }
        let place = &self.hub.namespace;
        let arguments = TURN.replace("{directory}", &directory.to_string_lossy());
        let mut command = place.command(find("turnserver"));
        let turn = Started::new(command.args(arguments.split(' ')));
        let mut turn = turn.context("(fix: apt-get install coturn)")?;
        turn.wait_until(|_| {
            let connected = place.run(|| TcpStream::connect((AT_HUB[0], TURN_PORT)).is_ok());
            connected.unwrap_or(false)
        })?;
        self.turn = Some(turn);
        Ok(())
    }

    /// The hub's key, and its address for the client at one end.
    pub(super) fn places(&self, is_left: bool) -> [(&'static str, String); 2] {
        let hub = AT_HUB[usize::from(!is_left)].to_string();
        [("{hub-key}", self.hub.keys.public_base64()), ("{hub}", hub)]
    }
}

/// Returns whether packets of the client at `left` take a direct path; errors mean that it is not up yet.
pub(super) fn is_direct(contender: &Contender, left: &Namespace) -> Result<bool> {
    let mut status = left.command(&contender.program);
    let printed = output(status.args(["status", "--json", TUNNEL]))?;
    let status: Value = serde_json::from_str(&printed)?;
    let direct = &status["interfaces"][0]["peers"][0]["direct"][0];
    Ok(direct["path"] == "direct")
}
