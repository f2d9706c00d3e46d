//! The state of TURN servers. [`crate::relaying`] says what they are for.

mod server;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use convoy_turn::{ChannelNumber, HEADER_LEN, MAX_PEERS, Phase, header};
use convoy_types::{Destination, MAX_UDP_PAYLOAD, Relay, RelayAddress, RelayTransport};

pub(crate) use server::Server;

/// Most control frames that wait for streams.
const MAX_FRAMES: usize = 256;
/// Most requests to open and close streams that wait.
const MAX_EVENTS: usize = 64;

/// Names a TURN server for as long as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub(crate) u32);

/// A request to the owner of the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayEvent {
    /// Open a stream to this server, then call [`Node::relay_opened`](crate::Node::relay_opened) or
    /// [`Node::relay_closed`](crate::Node::relay_closed).
    Connect(RelayId, Box<Relay>),
    /// Close the stream, if there is one, when its frames have been sent.
    Close(RelayId),
}

/// A control message for the stream of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayFrame {
    /// The server.
    pub relay: RelayId,
    /// The frame, without the zeros that follow it up to a multiple of four bytes.
    pub bytes: Bytes,
}

/// A peer that is met through a hub, and its addresses that a server is to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectNeed {
    pub(crate) peer: usize,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// The TURN servers of a node.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    pub(crate) servers: Vec<Server>,
    /// Peers that need a server, and until when; `None` for as long as they say.
    pub(crate) users: BTreeMap<usize, Option<Duration>>,
    /// Peers that are met through a hub, and need a server for that.
    pub(crate) needs: Vec<DirectNeed>,
    /// The servers that relay for them over IPv4 and over IPv6, as long as they work.
    pub(crate) of_directs: [Option<RelayId>; 2],
    pub(crate) frames: VecDeque<RelayFrame>,
    pub(crate) events: VecDeque<RelayEvent>,
    /// The number of servers so far.
    pub(crate) added: u32,
    pub(crate) renewed_at: Option<Duration>,
}

/// The way through a TURN server that a peer's datagrams take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    pub(crate) relay: RelayId,
    pub(crate) address: RelayAddress,
    /// `None` while the server has no channel to the peer.
    pub(crate) channel: Option<ChannelNumber>,
}

/// ChannelData around a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrapping {
    pub(crate) header: [u8; HEADER_LEN],
    /// The server to whose stream the message goes.
    pub(crate) stream: Option<RelayId>,
}

impl Relayed {
    pub(crate) fn is_stream(&self) -> bool {
        self.address.transport != RelayTransport::Udp
    }

    /// Readdresses a message of `len` bytes to the server; `None` if it cannot be sent.
    #[inline]
    pub(crate) fn wrap(&self, len: usize, destination: &mut Destination) -> Option<Wrapping> {
        let channel = self
            .channel
            .filter(|_| len + HEADER_LEN <= MAX_UDP_PAYLOAD)?;
        (destination.to, destination.source) = (self.address.server, None);
        Some(Wrapping {
            header: header(channel, len),
            stream: self.is_stream().then_some(self.relay),
        })
    }
}

impl Relays {
    pub(crate) fn server(&mut self, id: RelayId) -> Option<&mut Server> {
        self.servers.iter_mut().find(|it| it.id == id)
    }

    /// The server that relays to such an address of peers which are met through a hub, and the address of the same
    /// family that it has given.
    pub(crate) fn for_directs(&self, to: SocketAddr) -> Option<(RelayId, SocketAddr)> {
        let asked = self.servers.iter().filter(|it| it.is_asked);
        let mut ready = asked.filter_map(|it| match it.client.phase() {
            Phase::Ready(addresses) => Some((it.id, addresses.reaching(to)?)),
            _ => None,
        });
        let present = self.of_directs[usize::from(to.is_ipv6())];
        let is_present = |it: &(RelayId, SocketAddr)| Some(it.0) == present;
        ready.clone().find(is_present).or_else(|| ready.next())
    }

    /// Keeps to the servers that relay for peers which are met through a hub. Returns the addresses that they have
    /// given, IPv6 first.
    pub(crate) fn settle_for_directs(&mut self) -> Vec<SocketAddr> {
        let families = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let ready = families.map(|family: IpAddr| self.for_directs((family, 0).into()));
        self.of_directs = [ready[1], ready[0]].map(|it| it.map(|(relay, _)| relay));
        ready.into_iter().flatten().map(|(_, it)| it).collect()
    }

    /// The way to a peer's address by the server that relays for peers which are met through a hub.
    pub(crate) fn route_of_direct(&self, to: SocketAddr) -> Option<Relayed> {
        let (relay, _) = self.for_directs(to)?;
        let server = self.servers.iter().find(|it| it.id == relay)?;
        Some(server.route_to(Some(to))).filter(|route| route.channel.is_some())
    }

    /// Asks the first server while peers need one, and each further one once those before it have failed, or have no
    /// address of the family of one of the `endpoints`, or of any at which a peer may be met. Returns whether another is
    /// asked from now on.
    pub(crate) fn ask_next(&mut self, endpoints: &[SocketAddr]) -> bool {
        if self.users.is_empty() && self.needs.is_empty() {
            self.servers.iter_mut().for_each(|it| it.is_asked = false);
            return false;
        }
        let asked = self.servers.iter().filter(|it| it.is_asked);
        let is_served = |to: &[SocketAddr]| asked.clone().any(|it| it.may_serve(to));
        let needs = self.needs.iter().map(|it| &it.addresses[..]);
        let mut wanted = endpoints.iter().map(std::slice::from_ref).chain(needs);
        if is_served(&[]) && wanted.all(is_served) {
            return false;
        }
        let next = self.servers.iter_mut().find(|it| !it.is_asked);
        next.map(|it| it.is_asked = true).is_some()
    }

    /// The addresses that servers are to reach, as many as one takes: `endpoints`, then those at which peers may be met,
    /// of each peer in turn.
    pub(crate) fn to_reach(&self, endpoints: &[SocketAddr]) -> Vec<SocketAddr> {
        let of_each = self.needs.iter().map(|it| &it.addresses);
        let most = of_each.clone().map(Vec::len).max().unwrap_or(0);
        let needed = (0..most).flat_map(|nth| of_each.clone().filter_map(move |it| it.get(nth)));
        let all = endpoints.iter().chain(needed).copied();
        all.take(MAX_PEERS).collect()
    }

    pub(crate) fn push_event(&mut self, event: RelayEvent) {
        if self.events.len() == MAX_EVENTS {
            // A client repeats its wish after a pause.
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Queues a frame; if there is no room, the oldest gives way. Returns whether there was room.
    pub(crate) fn push_frame(&mut self, relay: RelayId, frame: &[u8]) -> bool {
        let has_room = self.frames.len() < MAX_FRAMES;
        if !has_room {
            self.frames.pop_front();
        }
        let bytes = Bytes::copy_from_slice(frame);
        self.frames.push_back(RelayFrame { relay, bytes });
        has_room
    }

    /// The server to try for a peer whose data no server carries yet.
    pub(crate) fn best_for(&self, to: SocketAddr) -> Option<usize> {
        let find = |is: &dyn Fn(&Server) -> bool| self.servers.iter().position(is);
        let reaching = find(&|it| it.reaches(to));
        reaching.or_else(|| find(&|it| it.is_asked && it.may_serve(&[to])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_lacks_an_address_for_the_many_of_others() {
        let address = |peer: u8, port| SocketAddr::from(([203, 0, 113, peer], port));
        let needs = (0..20).map(|peer| DirectNeed {
            peer: peer.into(),
            addresses: (1..=6).map(|port| address(peer, port)).collect(),
        });
        let relays = Relays {
            needs: needs.collect(),
            ..Relays::default()
        };
        let endpoint = address(99, 1);
        let all = relays.to_reach(&[endpoint]);
        assert_eq!((all.len(), all[0]), (MAX_PEERS, endpoint));
        for peer in 0..20 {
            assert!(all.contains(&address(peer, 1)), "{peer}");
        }
        let few = Relays::default().to_reach(&[endpoint]);
        assert_eq!(few, [endpoint]);
    }
}
