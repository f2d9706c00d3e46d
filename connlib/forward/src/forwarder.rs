//! Forwards connections and datagrams from listeners in one network to targets in another, by rules.

mod clients;
mod context;
mod service;
mod tcp;
mod udp;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use convoy_network::{
    Network,
    counters::{Counters, Totals},
    occupants::Occupants,
    peers::Peers,
    relay::{Relay, Tenant},
    shares::{self, Shares},
    waiting::Waiting,
};
use nix::errno::Errno;
use tokio::task::JoinSet;

use crate::{access::Access, lookups::Lookups, socks::TargetCount};
use clients::Clients;
use context::{Context, Shared};

pub use service::Service;

/// A service on some addresses, and its permitted clients.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Where to listen; port 0 is any free one. An IPv6 address that this host lacks is skipped if others are left.
    pub listen: Vec<SocketAddr>,
    /// Service that is offered there.
    pub service: Service,
    /// Access: each of these must allow the client.
    pub access: Vec<Access>,
    /// The tunnel's peers, if they are the clients: whatever a peer's addresses, it is one client.
    pub peers: Arc<Peers>,
}

/// How much may exist at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of all rules. Half of them are divided evenly among the rules, which can count on these. One client
    /// gets at most 64 of 81 that its rule may have.
    pub connections: usize,
    /// UDP flows of all rules, and associations of SOCKS5; a new one replaces the oldest of the holder that has most.
    pub flows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            flows: 4096,
        }
    }
}

/// Reason why a rule could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Other hosts could use it.
    #[error("{0} can be reached by other hosts: allow some, or require a password")]
    Unguarded(SocketAddr),
    /// The network refuses the address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Runs rules until it is dropped, which closes everything that they opened.
#[derive(Debug)]
pub struct Forwarder {
    shared: Arc<Shared>,
    rules: Vec<Running>,
    tasks: JoinSet<()>,
}

/// A rule that runs.
#[derive(Debug)]
pub struct Running {
    service: String,
    addresses: Vec<SocketAddr>,
    counters: Arc<Counters>,
}

impl Forwarder {
    /// A forwarder without rules.
    #[must_use]
    pub fn new(relay: impl Into<Arc<Relay>>, limits: Limits) -> Self {
        let most = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        let connections = shares::Limits {
            total: most,
            peer: most,
            peers: 0,
        };
        let shared = Shared {
            relay: relay.into(),
            connections: Shares::new(connections),
            clients: Clients::default(),
            flows: Occupants::default(),
            most_flows: limits.flows,
            waiting: Waiting::default(),
            targets: TargetCount::default(),
            lookups: Lookups::default(),
        };
        Self {
            shared: Arc::new(shared),
            rules: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Starts a rule: it listens in the network `near` and connects in the network `far`.
    ///
    /// # Errors
    /// An address on which it cannot or must not listen. Nothing of the rule runs then.
    pub async fn add(
        &mut self,
        rule: Rule,
        near: &Arc<dyn Network>,
        far: &Arc<dyn Network>,
    ) -> Result<&Running, StartError> {
        if let Some(open) = rule.unguarded() {
            return Err(StartError::Unguarded(open));
        }
        let context = Arc::new(Context {
            shared: Arc::clone(&self.shared),
            rule: self.rules.len() as u32,
            service: rule.service,
            access: rule.access,
            peers: rule.peers,
            counters: Arc::default(),
            tenant: Tenant::default(),
            near: Arc::clone(near),
            far: Arc::clone(far),
        });
        let mut addresses = Vec::new();
        let mut tasks = JoinSet::new();
        let mut skipped = None;
        for address in rule.listen {
            match context.listen(address, &mut tasks).await {
                Ok(address) => addresses.push(address),
                Err(source) if address.is_ipv6() && is_absent(&source) => {
                    skipped = Some(StartError::Listen { address, source });
                }
                Err(source) => return Err(StartError::Listen { address, source }),
            }
        }
        if let (true, Some(error)) = (addresses.is_empty(), skipped) {
            return Err(error);
        }
        self.tasks
            .spawn(async move { while tasks.join_next().await.is_some() {} });
        self.shared.connections.set_peers(context.rule + 1);
        self.rules.push(Running {
            service: context.service.to_string(),
            addresses,
            counters: Arc::clone(&context.counters),
        });
        Ok(&self.rules[self.rules.len() - 1])
    }

    /// The rules that run.
    #[must_use]
    pub fn rules(&self) -> &[Running] {
        &self.rules
    }

    /// The counters of all rules together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.rules.iter().for_each(|rule| sum.add(&rule.totals()));
        sum
    }
}

impl Context {
    async fn listen(
        self: &Arc<Self>,
        at: SocketAddr,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<SocketAddr> {
        match &self.service {
            Service::Udp(target) => {
                let socket = self.near.listening_datagrams(at).await?;
                let address = socket.local_addr()?;
                tasks.spawn(udp::serve(Arc::clone(self), socket, target.clone()));
                Ok(address)
            }
            _ => {
                let listener = self.near.listen(at).await?;
                let address = listener.local_addr()?;
                tasks.spawn(tcp::serve(Arc::clone(self), listener));
                Ok(address)
            }
        }
    }
}

/// Returns whether the host has no such address, or no such family.
fn is_absent(error: &io::Error) -> bool {
    let absent = [Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT];
    error
        .raw_os_error()
        .is_some_and(|code| absent.contains(&Errno::from_raw(code)))
}

impl Rule {
    /// An address that other hosts can reach although no clients are listed.
    #[must_use]
    pub fn unguarded(&self) -> Option<SocketAddr> {
        let has_login = matches!(
            &self.service,
            Service::Socks5(Some(_)) | Service::HttpConnect(Some(_))
        );
        if has_login || self.access.iter().any(|access| !access.allow.is_empty()) {
            return None;
        }
        let is_open = |address: &&SocketAddr| !is_loopback(address.ip());
        self.listen.iter().find(is_open).copied()
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Running {
    /// Returns where it listens, with the ports that were chosen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns its traffic and refusals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for address in &self.addresses {
            write!(f, "{address} ")?;
        }
        write!(f, "→ {}", self.service)
    }
}

#[cfg(test)]
mod tests;
