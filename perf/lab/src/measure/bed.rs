//! A tunnel to measure: that of [`wireguard`](crate::wireguard), with traffic agents.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Ends, daemons};
use crate::traffic::Agent;
use crate::wireguard::{Implementation, Tunnel, TunnelOptions, Underlay};
use crate::{Lab, LabError, Namespace, Result};

/// On a link that loses datagrams, allows three handshake attempts five seconds apart.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(17);
const HANDSHAKE_PROBE: Duration = Duration::from_millis(30);

/// Two namespaces with a veth and a tunnel between them, and traffic agents inside.
///
/// ```text
///    left                                       right
///    daemon wg0 ══════════ tunnel ══════════ wg0 daemon
///         veth0 ─────────── veth ─────────── veth0
///    agent, prober                              agent with echo
/// ```
pub struct Bed {
    /// The traffic agents.
    pub ends: Ends,
    /// The daemons.
    pub tunnel: Tunnel,
    // Dropped last: everything inside ends with it.
    lab: Lab,
}

impl Bed {
    /// Builds the namespaces and the tunnel, and starts `daemon` at each end. `agent` returns the command that runs
    /// [`traffic::serve_child`](crate::traffic::serve_child) inside a namespace.
    pub fn with(
        daemon: &Implementation,
        agent: impl Fn(&Namespace) -> Command,
        options: &TunnelOptions,
    ) -> Result<Self> {
        let lab = Lab::new()?;
        let tunnel = Tunnel::new(&lab, daemon, daemon, options)?;
        let (left, right) = (&tunnel.left.namespace, &tunnel.right.namespace);
        let start = |namespace| Agent::spawn(agent(namespace));
        let ends = Ends::new(start(left)?, start(left)?, start(right)?)?;
        Ok(Self { ends, tunnel, lab })
    }

    /// For namespaces besides the tunnel's two.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Replaces both daemons.
    pub fn restart(&mut self, daemon: &Implementation) -> Result<()> {
        // The left end starts the handshake, so the right one must be running.
        self.tunnel.right.replace_daemon(daemon)?;
        self.tunnel.left.replace_daemon(daemon)
    }

    /// Waits until packets pass the tunnel, 17 seconds at most; fails at once if a daemon ends.
    pub fn wait_until_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + HANDSHAKE_PATIENCE;
        let via = self.tunnelled();
        while self.ends.ping(via, HANDSHAKE_PROBE)?.received == 0 {
            daemons::check(&mut self.tunnel)?;
            if Instant::now() > deadline {
                let logs = [&self.tunnel.left, &self.tunnel.right].map(daemons::log_tail);
                let problem = format!("within {HANDSHAKE_PATIENCE:?}\n{}", logs.join("\n"));
                return Err(LabError::NoPassage(problem));
            }
        }
        Ok(())
    }

    /// The right end's address in the tunnel.
    pub fn tunnelled(&self) -> IpAddr {
        self.tunnel.right.inner_v4()
    }

    /// The right end's address on the veth, outside the tunnel.
    pub fn bare(&self) -> IpAddr {
        self.tunnel.right.outer(Underlay::V4).ip()
    }
}
