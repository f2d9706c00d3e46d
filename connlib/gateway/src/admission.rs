//! Admission of flows: which peer may begin one, and to which target.

use std::sync::Arc;

use super::ends::Ends;
use convoy_network::{
    counters::Refusal,
    expiry::Expiry,
    occupants::{Holder, Occupant, Occupants},
};
use convoy_network::{
    peers::Peers,
    policy::Policy,
    shares::{Share, Shares},
};

#[derive(Debug)]
pub(super) struct Admission {
    pub(super) peers: Arc<Peers>,
    pub(super) policy: Policy,
    pub(super) flows: Shares,
    /// Connections whose targets have not answered.
    pub(super) pending: Shares,
    /// Flows of datagrams that are being made. Silent hosts hold `pending` for seconds, so these have their own.
    pub(super) opening: Shares,
    /// Flows of datagrams and of echo requests, which can give way.
    pub(super) occupants: Occupants,
}

impl Admission {
    /// Takes a share for a peer's flow and one for setting it up, if the peer may have them.
    pub(super) fn admit(&self, ends: Ends) -> Result<(Share, Share), Refusal> {
        let peer = self.permit(ends)?;
        Ok((self.flows.take(peer)?, self.pending.take(peer)?))
    }

    /// Takes the same for a flow that can be replaced, where another one gives way if need be.
    pub(super) fn admit_flow(
        &self,
        ends: Ends,
        flow: &Arc<Expiry>,
    ) -> Result<(Occupant, Share), Refusal> {
        let peer = self.permit(ends)?;
        let holder = Holder::new(peer, ends.peer.ip());
        let opening = self.opening.take(peer)?;
        let share = match self.flows.take(peer) {
            Err(refusal) if self.make_room(holder, refusal) => self.flows.take(peer),
            taken => taken,
        };
        Ok((self.occupants.add(holder, flow, Some(share?)), opening))
    }

    /// Checks the target again once all is known of it.
    pub(super) async fn settle(&self, ends: Ends) -> Result<(), Refusal> {
        match self.policy.discover(ends.target) {
            None => Ok(()),
            Some(discovery) => {
                discovery.await;
                self.policy.check(ends.target)
            }
        }
    }

    /// Ends a flow whose share a holder can then take; whether there is one.
    fn make_room(&self, holder: Holder, refusal: Refusal) -> bool {
        let fullest = self.occupants.fullest(holder.group);
        let group = match refusal {
            // Whatever a peer can count on is not taken from it.
            Refusal::TooMany if self.flows.is_beyond_reserve(fullest) => fullest,
            _ => holder.group,
        };
        self.occupants.make_room(holder, group)
    }

    /// The number of the peer, if it may reach the target.
    fn permit(&self, ends: Ends) -> Result<u32, Refusal> {
        let peer = self.peers.of(ends.peer.ip()).ok_or(Refusal::Denied)?;
        if self.peers.has(ends.target.ip().to_canonical()) {
            return Err(Refusal::TargetDenied);
        }
        self.policy.check(ends.target)?;
        Ok(peer)
    }
}
