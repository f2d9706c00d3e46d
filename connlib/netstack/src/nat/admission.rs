//! Admission of flows: which peer may begin one, and to which target.

use std::sync::Arc;

use super::{Peers, Policy, Share, Shares, gateway::Ends};
use crate::counters::Refusal;

#[derive(Debug)]
pub(super) struct Admission {
    pub(super) peers: Arc<Peers>,
    pub(super) policy: Policy,
    pub(super) flows: Shares,
    pub(super) pending: Shares,
}

impl Admission {
    /// Takes a share for a peer's flow and one for setting it up, if the peer may have them.
    pub(super) fn admit(&self, ends: Ends) -> Result<(Share, Share), Refusal> {
        let peer = self.peers.of(ends.peer.ip()).ok_or(Refusal::Denied)?;
        if self.peers.has(ends.target.ip().to_canonical()) {
            return Err(Refusal::TargetDenied);
        }
        self.policy.check(ends.target)?;
        Ok((self.flows.take(peer)?, self.pending.take(peer)?))
    }
}
