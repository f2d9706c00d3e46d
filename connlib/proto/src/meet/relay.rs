//! The relay as the last way to peers that are met through a hub.
//!
//! The agents say for which addresses they need one, and the servers in use say which of them they reach. Messages and
//! data go to a peer's address by ChannelData alone; a peer without a channel is heard by Data indications, of which only
//! data messages of a session count.

use std::{net::SocketAddr, time::Duration};

use convoy_paths::Agent;

use crate::{
    counters::DropReason,
    node::Node,
    relays::{DirectNeed, RelayId},
};

impl Node {
    /// Tells the servers which addresses the agents need them for, if that has changed.
    pub(super) fn ask_relays(&mut self, now: Duration) {
        let Some(relays) = &mut self.relays else {
            return;
        };
        let agents = self.directs.by_key.values().filter_map(|id| {
            let direct = self.peers[*id].direct.as_deref()?;
            direct.agent.wants_relay().then_some((*id, &direct.agent))
        });
        let needs = agents.map(|(peer, agent)| DirectNeed {
            peer,
            addresses: agent.relay_peers().collect(),
        });
        let needs: Vec<_> = needs.collect();
        if relays.needs != needs {
            relays.needs = needs;
            self.update_relays(now);
        }
    }

    /// Lets all agents know whether there are servers.
    pub(crate) fn allow_relays(&mut self, now: Duration) {
        let is_there = self.relays.is_some();
        for id in self.direct_ids() {
            if let Some(direct) = self.peers[id].direct.as_deref_mut() {
                direct.agent.allow_relay(is_there, now);
                self.drive(id, now);
            }
        }
    }

    /// Tells the agents how far the servers are: call it when they may have got further.
    pub(crate) fn tell_agents_of_relays(&mut self, now: Duration) {
        let Some(relays) = self.relays.as_deref_mut() else {
            return;
        };
        let given = relays.settle_for_directs();
        for id in self.direct_ids() {
            let Some(relays) = self.relays.as_deref() else {
                return;
            };
            let Some(direct) = self.peers[id].direct.as_deref_mut() else {
                continue;
            };
            let agent = &mut direct.agent;
            let is_wanted = agent.wants_relay();
            let mut is_news = agent.set_relay(if is_wanted { &given } else { &[] }, now);
            let peers: Vec<_> = agent.relay_peers().collect();
            let bound = peers
                .into_iter()
                .filter(|it| relays.route_of_direct(*it).is_some());
            for remote in bound {
                is_news |= agent.handle_channel(remote, now);
            }
            if is_news {
                self.drive(id, now);
            }
        }
    }

    /// Sends a message to an address of a peer through the channel that a server has to it.
    pub(super) fn send_by_channel(&mut self, to: SocketAddr, message: &[u8]) {
        let sent = self.relays.take().is_some_and(|mut relays| {
            let sent = relays
                .for_directs(to)
                .is_some_and(|(relay, _)| self.push_wrapped(&mut relays, relay, to, message));
            self.relays = Some(relays);
            sent
        });
        if !sent {
            let reason = DropReason::OutboundRelayNotReady;
            self.counters.drops.add(reason, 1);
        }
    }

    /// Returns whether agents take what this server relays from an address.
    pub(super) fn is_relay_of_directs(&self, relay: RelayId, from: SocketAddr) -> bool {
        let relays = self.relays.as_deref();
        let ready = relays.and_then(|it| it.for_directs(from));
        ready.is_some_and(|(it, _)| it == relay)
    }

    /// Makes the agent of a peer, which knows this side's addresses and whether there are relays.
    pub(super) fn new_agent(&mut self, now: Duration) -> Agent {
        let mut agent = Agent::new(super::seed(&mut self.randomness));
        agent.allow_relay(self.relays.is_some(), now);
        agent
    }
}
