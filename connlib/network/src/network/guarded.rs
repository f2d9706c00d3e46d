//! A network of which not every target may be reached.

use std::{net::SocketAddr, sync::Arc};

use super::{Answer, Datagrams, Listener, Network, Stream};
use crate::{counters::Refusal, policy::Policy, translators::Discovery};

/// A network whose targets, which clients of a proxy name, must be allowed by a policy.
#[derive(Debug)]
pub struct Guarded {
    /// The network.
    pub network: Arc<dyn Network>,
    /// Rules for targets.
    pub policy: Policy,
    /// Whether only what the policy denies is refused, as for clients of this host alone: they reach everything else by
    /// themselves.
    pub is_trusting: bool,
}

impl Network for Guarded {
    fn check(&self, to: SocketAddr) -> Result<(), Refusal> {
        match self.policy.check(to) {
            Err(Refusal::Forbidden) if self.is_trusting => Ok(()),
            outcome => outcome,
        }
    }

    fn discover(&self, to: SocketAddr) -> Option<Discovery> {
        let matters = !self.is_trusting || !self.policy.deny.is_empty();
        matters.then(|| self.policy.discover(to)).flatten()
    }

    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        self.network.resolve(name, port)
    }

    fn takes_threads(&self) -> bool {
        self.network.takes_threads()
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, Stream> {
        self.network.connect(to)
    }

    fn listen(&self, at: SocketAddr) -> Answer<'_, Listener> {
        self.network.listen(at)
    }

    fn datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.network.datagrams(at)
    }

    fn listening_datagrams(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.network.listening_datagrams(at)
    }

    fn datagrams_beside(&self, at: SocketAddr) -> Answer<'_, Datagrams> {
        self.network.datagrams_beside(at)
    }
}
