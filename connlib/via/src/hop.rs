//! The outer tunnel, and its seams to the inner one.

use std::{net::IpAddr, time::Duration};

use convoy_aead::Aead;
use convoy_packet::{packet::Packet, vnet::VnetHeader};
use convoy_proto::{
    Datagram, DatagramSink, Handled, Node, PacketSink, PacketSource, RelayId, Staging,
    counters::DropReason,
};

use crate::{
    fragments::Fragments,
    too_big::{self, TooBig},
    unwrapped::{self, Meaning, Unwrapped},
    wrapped::{Sender, Wrapped},
};

/// The outer tunnel.
#[derive(Debug)]
pub struct Hop {
    node: Node,
    outbound: Wrapped,
    pub(crate) inbound: Unwrapped,
    pub(crate) fragments: Fragments,
}

impl Hop {
    /// An outer tunnel without keys and peers.
    #[must_use]
    pub fn new(aead: Aead) -> Self {
        Self {
            node: Node::new(aead),
            outbound: Wrapped::default(),
            inbound: Unwrapped::default(),
            fragments: Fragments::default(),
        }
    }

    /// The state machine of the outer tunnel, whose datagrams go to the sockets.
    pub fn node(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Sets from where the inner tunnel sends: the first of `addresses` of each family, which are those of the outer
    /// tunnel, and `port`.
    pub fn place(&mut self, addresses: &[IpAddr], port: u16) {
        let first = |is_ipv4| addresses.iter().find(|it| it.is_ipv4() == is_ipv4).copied();
        self.outbound.sender = Sender {
            addresses: [first(true), first(false)],
            port,
        };
    }

    /// The port from which the inner tunnel sends, inside the outer one; 0 before [`Hop::place`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.outbound.sender.port
    }

    /// Returns when to call [`Hop::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let deadlines = [self.node.poll_timeout(), self.fragments.next_expiry()];
        deadlines.into_iter().flatten().min()
    }

    /// Handles a due timer; returns whether there was one.
    pub fn handle_timeout(&mut self, now: Duration) -> bool {
        let drops = &mut self.node.counters().drops;
        self.fragments.expire(now, drops) | self.node.handle_timeout(now)
    }

    /// Handles packets from the TUN, while `sink` has room for their datagrams: `inner` seals them, then the outer tunnel
    /// seals its datagrams. Its own datagrams, which a route has led back into the interface, are dropped: sealed once more,
    /// they would come back for ever.
    pub fn handle_outbound(
        &mut self,
        inner: &mut Node,
        packets: &mut impl PacketSource,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) {
        loop {
            let mut looped = 0;
            let outer = &self.node;
            let is_looped = |packet: &[u8]| {
                let is_own = outer.is_own_datagram(packet);
                looped += u64::from(is_own);
                is_own
            };
            let mut within = self.outbound.within(sink.room());
            inner.handle_outbound_except(packets, now, staging, &mut within, is_looped);
            self.drop(DropReason::OutboundLoop, looped);
            if !self.push_on(now, staging, sink) {
                return;
            }
        }
    }

    /// Sends the held packets of both tunnels, while `sink` has room.
    pub fn drain_held(
        &mut self,
        inner: &mut Node,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) {
        if self.node.has_ready() {
            self.node.drain_held(now, staging, sink);
        }
        self.push_on(now, staging, sink);
        while inner.has_ready() {
            let mut within = self.outbound.within(sink.room());
            inner.drain_held(now, staging, &mut within);
            if !self.push_on(now, staging, sink) {
                return;
            }
        }
    }

    /// Returns whether [`Hop::drain_held`] has anything to do.
    #[must_use]
    pub fn has_ready(&self, inner: &Node) -> bool {
        inner.has_ready() || self.node.has_ready() || self.outbound.len() > 0
    }

    /// Sends handshake messages, cookies and keepalives of `inner` through the outer tunnel, while `sink` has room. The others
    /// stay with `inner`.
    pub fn send_control(&mut self, inner: &mut Node, now: Duration, sink: &mut impl DatagramSink) {
        let mut staging = None;
        loop {
            let mut within = self.outbound.within(sink.room());
            while within.room() > 0
                && let Some(control) = inner
                    .poll_control(true)
                    .or_else(|| inner.poll_control(false))
            {
                if within
                    .append(&control.destination, &control.datagram)
                    .is_err()
                {
                    let drops = &mut inner.counters().drops;
                    drops.add(DropReason::OutboundQueueFull, 1);
                }
            }
            if self.outbound.len() == 0 {
                self.count_homeless();
                return;
            }
            let staging = staging.get_or_insert_with(Staging::default);
            if !self.push_on(now, staging, sink) {
                return;
            }
        }
    }

    /// Handles datagrams from the sockets, while there is room for their packets: call [`Hop::deliver`] afterwards.
    pub fn handle_inbound<'a>(
        &mut self,
        datagrams: impl IntoIterator<Item = Datagram<'a>>,
        now: Duration,
    ) -> Handled {
        self.node.handle_inbound(datagrams, now, &mut self.inbound)
    }

    /// As [`Hop::handle_inbound`], with frames of a stream to a TURN server.
    pub fn handle_relay_frames<'a>(
        &mut self,
        relay: RelayId,
        frames: impl IntoIterator<Item = &'a [u8]>,
        now: Duration,
    ) -> Handled {
        self.node
            .handle_relay_frames(relay, frames, now, &mut self.inbound)
    }

    /// Returns whether `inner` has got all that [`Hop::handle_inbound`] has opened.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.inbound.is_empty() && self.fragments.whole().is_none()
    }

    /// Passes datagrams to `inner` while `sink` has room for their packets, and `admits` each of them.
    pub fn deliver(
        &mut self,
        inner: &mut Node,
        now: Duration,
        sink: &mut impl PacketSink,
        mut admits: impl FnMut(&[u8]) -> bool,
    ) -> Handled {
        let mut all = Handled {
            datagrams: 0,
            is_sink_full: false,
        };
        loop {
            let of_whole = self.deliver_whole(inner, now, sink, &mut admits);
            all.datagrams += of_whole.datagrams;
            if self.fragments.whole().is_some() {
                all.is_sink_full = of_whole.is_sink_full;
                return all;
            }
            let sender = self.outbound.sender;
            // Up to the first packet that is none of them.
            let datagrams =
                self.inbound
                    .packets()
                    .map_while(|bytes| match unwrapped::read(bytes, &sender) {
                        Meaning::Datagram(datagram) => Some(datagram),
                        _ => None,
                    });
            let admitted = datagrams.take_while(|it| admits(it.bytes));
            let handled = inner.handle_inbound(admitted, now, sink);
            self.inbound.advance(handled.datagrams);
            all.datagrams += handled.datagrams;
            all.is_sink_full = handled.is_sink_full;
            if handled.is_sink_full || !self.handle_others(inner, now) {
                return all;
            }
        }
    }

    /// Passes on the datagram that was put together, if there is one: it is older than those that wait.
    fn deliver_whole(
        &mut self,
        inner: &mut Node,
        now: Duration,
        sink: &mut impl PacketSink,
        admits: impl FnMut(&[u8]) -> bool,
    ) -> Handled {
        let nothing = Handled {
            datagrams: 0,
            is_sink_full: false,
        };
        let Some(whole) = self.fragments.whole() else {
            return nothing;
        };
        let sender = self.outbound.sender;
        match unwrapped::read_datagram(&whole.bytes, whole.source, whole.ecn, &sender) {
            Meaning::Datagram(datagram) => {
                let mut admits = admits;
                let admitted = Some(datagram).filter(|it| admits(it.bytes));
                let handled = inner.handle_inbound(admitted, now, sink);
                if handled.datagrams > 0 {
                    self.fragments.advance();
                }
                handled
            }
            Meaning::Dropped(reason) => {
                self.drop(reason, 1);
                self.fragments.advance();
                nothing
            }
            Meaning::Icmp(_) | Meaning::Fragment(..) => nothing,
        }
    }

    /// Hears the outer tunnel's own errors about datagrams of `inner`.
    pub fn hear_errors(&mut self, inner: &mut Node, now: Duration) {
        while let Some(reply) = self.node.poll_reply() {
            if let Ok(packet) = Packet::parse(VnetHeader::default(), &reply) {
                self.hear(inner, &packet, now);
            }
        }
    }

    /// Follows the link. A link that goes down drops all that is on its way; returns the number of outbound datagrams.
    pub fn set_link(&mut self, is_up: bool, now: Duration) -> usize {
        self.node.set_link(is_up, now);
        if is_up {
            return 0;
        }
        let inbound = self.inbound.clear() as u64 + self.fragments.clear();
        self.drop(DropReason::InboundLinkDown, inbound);
        self.outbound.clear()
    }

    /// Lets the outer tunnel seal what waits for it; returns whether anything did, and all of it is sealed.
    fn push_on(
        &mut self,
        now: Duration,
        staging: &mut Staging,
        sink: &mut impl DatagramSink,
    ) -> bool {
        self.count_homeless();
        let had_any = self.outbound.len() > 0;
        if had_any {
            self.node
                .handle_outbound(&mut self.outbound, now, staging, sink);
        }
        had_any && self.outbound.len() == 0
    }

    /// Handles the oldest packets up to the first datagram for `inner`, or the fragment that completes one; an ICMP error among
    /// them may tell of one that was too long. Returns whether there were any.
    fn handle_others(&mut self, inner: &mut Node, now: Duration) -> bool {
        let sender = self.outbound.sender;
        let mut others = 0;
        for bytes in self.inbound.packets() {
            let reason = match unwrapped::read(bytes, &sender) {
                Meaning::Datagram(_) => break,
                Meaning::Icmp(packet) => {
                    let told = too_big::read(&packet, &sender).filter(|it| it.has_exceeded);
                    let is_believed = note_too_big(inner, told, now);
                    (!is_believed).then_some(DropReason::InboundViaForeign)
                }
                Meaning::Fragment(packet, fragment) if inner.has_peer_at(packet.source) => {
                    let drops = &mut self.node.counters().drops;
                    self.fragments.add(&packet, fragment, now, drops);
                    None
                }
                Meaning::Fragment(..) => Some(DropReason::InboundViaForeign),
                Meaning::Dropped(reason) => Some(reason),
            };
            others += 1;
            let drops = &mut self.node.counters().drops;
            reason.into_iter().for_each(|reason| drops.add(reason, 1));
            if self.fragments.whole().is_some() {
                break;
            }
        }
        self.inbound.advance(others);
        others > 0
    }

    fn hear(&mut self, inner: &mut Node, packet: &Packet<'_>, now: Duration) {
        note_too_big(inner, too_big::read(packet, &self.outbound.sender), now);
    }

    fn count_homeless(&mut self) {
        let homeless = self.outbound.take_homeless();
        self.drop(DropReason::OutboundViaNoAddress, homeless);
    }

    fn drop(&mut self, reason: DropReason, count: u64) {
        self.node.counters().drops.add(reason, count);
    }
}

/// Shortens further packets if an error is about a datagram that `inner` has sent; returns whether it is.
fn note_too_big(inner: &mut Node, told: Option<TooBig<'_>>, now: Duration) -> bool {
    let Some(told) = told else {
        return false;
    };
    let is_ours = inner.has_sent(told.to, told.message);
    if is_ours {
        inner.handle_too_big(told.to, told.length, now);
    }
    is_ours
}
