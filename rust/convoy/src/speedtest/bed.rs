//! Where the tunnel is measured: what [`convoy_lab::wireguard`] draws, with traffic agents.
//!
//! ```text
//!    left                                       right
//!    daemon wg0 ══════════ tunnel ══════════ wg0 daemon
//!         veth0 ─────────── veth ─────────── veth0
//!    agent, prober                              agent with echo
//! ```

use std::net::IpAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use convoy_lab::traffic::Agent;
use convoy_lab::wireguard::{Implementation, Tunnel, TunnelOptions, Underlay};
use convoy_lab::{Lab, Namespace, loss};

use super::args::SpeedtestArgs;
use super::ends::Ends;
use super::{daemons, inside};

/// The veth's name at both ends.
const VETH: &str = "veth0";
/// On a link that loses datagrams a handshake may be tried three times, five seconds apart.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(17);
const HANDSHAKE_PROBE: Duration = Duration::from_millis(30);

/// Two namespaces with a veth and a tunnel between them, and traffic agents inside.
pub(super) struct Bed {
    pub(super) ends: Ends,
    pub(super) tunnel: Tunnel,
    // Last: everything inside ends with it.
    _lab: Lab,
}

/// How the veth behaves; at first it takes everything and loses nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    /// Whether it takes GSO datagrams and TCP super-packets uncut, which no wire does.
    pub(super) veth_gso: bool,
    /// Packets that it drops, in percent.
    pub(super) loss_percent: f64,
}

impl Bed {
    /// Builds the namespaces and starts a daemon at each end.
    pub(super) fn new(daemon: &Implementation) -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let tunnel = Tunnel::new(&lab, daemon, daemon, &TunnelOptions::default())?;
        let (left, right) = (&tunnel.left.namespace, &tunnel.right.namespace);
        let ends = Ends::new(agent(left)?, agent(left)?, agent(right)?)?;
        Ok(Self {
            ends,
            tunnel,
            _lab: lab,
        })
    }

    /// Makes the veth behave so from now on.
    pub(super) fn impose(&self, conditions: Conditions) -> anyhow::Result<()> {
        for end in [&self.tunnel.left, &self.tunnel.right] {
            if !conditions.veth_gso {
                inside::cut_veth_batches(&end.namespace, VETH)?;
            }
            if conditions.loss_percent > 0.0 {
                loss::lose_arriving(&end.namespace, VETH, conditions.loss_percent)
                    .context("--loss")?;
            }
        }
        Ok(())
    }

    /// Replaces both daemons.
    pub(super) fn restart(&mut self, daemon: &Implementation) -> anyhow::Result<()> {
        // The left one speaks first: the other must be there.
        self.tunnel.right.replace_daemon(daemon)?;
        self.tunnel.left.replace_daemon(daemon)?;
        Ok(())
    }

    /// Waits until packets pass the tunnel.
    pub(super) fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + HANDSHAKE_PATIENCE;
        let via = self.tunnelled();
        while self.ends.ping(via, HANDSHAKE_PROBE)?.received == 0 {
            daemons::check(&mut self.tunnel)?;
            if Instant::now() > deadline {
                bail!(
                    "no packet passed the tunnel within {HANDSHAKE_PATIENCE:?}\n{}\n{}",
                    daemons::log_tail(&self.tunnel.left),
                    daemons::log_tail(&self.tunnel.right)
                );
            }
        }
        Ok(())
    }

    /// The right end's address in the tunnel.
    pub(super) fn tunnelled(&self) -> IpAddr {
        self.tunnel.right.inner_v4()
    }

    /// The right end's address on the veth: the way without a tunnel.
    pub(super) fn bare(&self) -> IpAddr {
        self.tunnel.right.outer(Underlay::V4).ip()
    }
}

/// The daemon that `args` asks for, with `switches`.
pub(super) fn implementation(
    args: &SpeedtestArgs,
    switches: &[String],
) -> anyhow::Result<Implementation> {
    let daemon = Implementation::new(args.program()?);
    Ok(switches.iter().fold(daemon, Implementation::argument))
}

fn agent(namespace: &Namespace) -> anyhow::Result<Agent> {
    let child = inside::traffic_command(namespace)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start a traffic agent in {}", namespace.label()))?;
    Ok(Agent::from_child(child)?)
}
