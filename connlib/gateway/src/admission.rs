//! Admission of flows: which peer may begin one, and to which target.

use std::sync::Arc;

use super::{ends::Ends, pending::Pending};
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
    /// Takes a share for a peer's connection and one for setting it up, if the peer may have them. A connection to a
    /// silent host or a flow that can be replaced gives way if need be.
    pub(super) fn admit(&self, ends: Ends, waiting: &Pending) -> Result<(Share, Share), Refusal> {
        let peer = self.permit(ends)?;
        let setting_up = match self.pending.take(peer) {
            Err(_) if waiting.make_room(peer) => self.pending.take(peer),
            taken => taken,
        };
        let setting_up = setting_up?;
        let holder = Holder::new(peer, ends.peer.ip());
        // The fullest is found without connections: a peer with many could otherwise take from those with fewer.
        let fullest = self.occupants.fullest(peer);
        let holds_more = self.flows.held(fullest) > self.flows.held(peer);
        let fullest = if holds_more { fullest } else { peer };
        let share = self.take_flow(holder, fullest, |group| self.has_many_datagrams(group));
        Ok((share?, setting_up))
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
        let share = self.take_flow(holder, self.occupants.fullest(peer), |_| true)?;
        Ok((self.occupants.add(holder, flow, Some(share)), opening))
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

    /// Takes a share of the flows; where there is none, a flow of the fullest peer or of the holder's gives way, if that
    /// may be.
    fn take_flow(
        &self,
        holder: Holder,
        fullest: u32,
        may_give_way: impl Fn(u32) -> bool,
    ) -> Result<Share, Refusal> {
        let refusal = match self.flows.take(holder.group) {
            Ok(share) => return Ok(share),
            Err(refusal) => refusal,
        };
        let group = match refusal {
            // Whatever a peer can count on is not taken from it.
            Refusal::TooMany if self.flows.is_beyond_reserve(fullest) => fullest,
            _ => holder.group,
        };
        if may_give_way(group) && self.occupants.make_room(holder, group) {
            return self.flows.take(holder.group);
        }
        Err(refusal)
    }

    /// Returns whether flows of datagrams are more than an eighth of a peer's flows: the last ones, for names and the
    /// like, are not for connections.
    fn has_many_datagrams(&self, peer: u32) -> bool {
        let datagrams = self.occupants.held(peer);
        datagrams > self.flows.held(peer) as usize / 8
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
