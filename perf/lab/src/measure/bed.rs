//! A tunnel to be measured: that of [`wireguard`](crate::wireguard), with traffic agents.

use std::{
    net::IpAddr,
    process::Command,
    time::{Duration, Instant},
};

use super::{Ends, MeasureError, daemons};
use crate::{
    Lab, Namespace,
    traffic::Agent,
    wireguard::{Implementation, Tunnel, TunnelOptions, Underlay},
};

/// On a link that loses datagrams a handshake may be tried three times, five seconds apart.
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
    // Last: everything inside ends with it.
    lab: Lab,
}

impl Bed {
    /// A bed with the usual tunnel, see [`Self::with`].
    ///
    /// # Errors
    ///
    /// See [`Self::with`].
    pub fn new(
        daemon: &Implementation,
        agent: impl Fn(&Namespace) -> Command,
    ) -> Result<Self, MeasureError> {
        Self::with(daemon, agent, &TunnelOptions::default())
    }

    /// Builds the namespaces and the tunnel, and starts `daemon` at each end. `agent` gives the command, inside a
    /// namespace, that runs [`traffic::serve_child`](crate::traffic::serve_child).
    ///
    /// # Errors
    ///
    /// When a namespace cannot be had, or a daemon or an agent does not start.
    pub fn with(
        daemon: &Implementation,
        agent: impl Fn(&Namespace) -> Command,
        options: &TunnelOptions,
    ) -> Result<Self, MeasureError> {
        let lab = Lab::new()?;
        let tunnel = Tunnel::new(&lab, daemon, daemon, options)?;
        let (left, right) = (&tunnel.left.namespace, &tunnel.right.namespace);
        let start = |namespace| Agent::spawn(agent(namespace));
        let ends = Ends::new(start(left)?, start(left)?, start(right)?)?;
        Ok(Self { ends, tunnel, lab })
    }

    /// For more namespaces beside the tunnel's two.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Replaces both daemons.
    ///
    /// # Errors
    ///
    /// When one does not start.
    pub fn restart(&mut self, daemon: &Implementation) -> Result<(), MeasureError> {
        // The left one speaks first: the other must be there.
        self.tunnel.right.replace_daemon(daemon)?;
        self.tunnel.left.replace_daemon(daemon)?;
        Ok(())
    }

    /// Waits until packets pass the tunnel.
    ///
    /// # Errors
    ///
    /// When none does within 17 seconds, or when a daemon ends; with the end of its log.
    pub fn wait_until_up(&mut self) -> Result<(), MeasureError> {
        let deadline = Instant::now() + HANDSHAKE_PATIENCE;
        let via = self.tunnelled();
        while self.ends.ping(via, HANDSHAKE_PROBE)?.received == 0 {
            daemons::check(&mut self.tunnel)?;
            if Instant::now() > deadline {
                return Err(MeasureError::NoPassage {
                    patience: HANDSHAKE_PATIENCE,
                    left: daemons::log_tail(&self.tunnel.left),
                    right: daemons::log_tail(&self.tunnel.right),
                });
            }
        }
        Ok(())
    }

    /// The right end's address in the tunnel.
    #[must_use]
    pub fn tunnelled(&self) -> IpAddr {
        self.tunnel.right.inner_v4()
    }

    /// The right end's address on the veth: the way without a tunnel.
    #[must_use]
    pub fn bare(&self) -> IpAddr {
        self.tunnel.right.outer(Underlay::V4).ip()
    }
}
