//! The packets on the client's cable, as the net sees them.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use convoy_lab::PacketSocket;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::world::World;
use crate::scene::DEADLINE;

/// The prefixes of addresses that no packet on the cable may have, as text.
const INNER: [&str; 4] = ["10.8.0.", "198.51.100.", "fd08:", "2001:db8:ffff:"];
const CLIENT: [&str; 3] = ["192.168.1.2", "192.168.2.2", "2001:db8:2::2"];
const SERVERS: [&str; 4] = [
    "203.0.113.1",
    "203.0.113.2",
    "2001:db8:1::1",
    "2001:db8:1::2",
];
const WIREGUARD: u16 = 51_820;
pub(super) const DNS: u16 = 53;

/// Listens on the client's cable.
pub(super) struct Capture(PacketSocket);

/// A packet on the cable.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    /// The destination port.
    pub(super) udp: Option<u16>,
    /// The same by TCP.
    pub(super) tcp: Option<u16>,
    is_icmpv6: bool,
    is_icmpv4: bool,
}

impl Capture {
    pub(super) fn new(world: &World) -> Self {
        Self::on(world, "lan")
    }

    /// Listens to another cable, by the name of its end at the net.
    pub(super) fn on(world: &World, cable: &str) -> Self {
        Self(PacketSocket::hearing(&world.net, cable).unwrap())
    }

    /// Everything that passed since the last call.
    pub(super) fn seen(&self) -> Vec<Seen> {
        // More may pass all the time.
        let deadline = Instant::now() + DEADLINE / 10;
        let mut seen = Vec::new();
        while Instant::now() < deadline
            && let Some(frame) = self.0.receive(Duration::from_micros(1)).unwrap()
        {
            seen.extend(Seen::parse(&frame));
        }
        seen
    }

    /// Requires that no leak passed since the last call of [`Self::seen`] or this; returns what did.
    pub(super) fn leaks_nothing(&self, when: &str) -> Vec<Seen> {
        let seen = self.seen();
        let leaks: Vec<_> = seen.iter().filter(|packet| packet.is_leak()).collect();
        assert!(leaks.is_empty(), "{when}: {leaks:?}");
        seen
    }

    /// The packets until one satisfies `wanted`, with it.
    pub(super) fn until(&self, wanted: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        while Instant::now() < deadline {
            let frame = self.0.receive(Duration::from_millis(100)).unwrap();
            let Some(packet) = frame.and_then(|frame| Seen::parse(&frame)) else {
                continue;
            };
            seen.push(packet);
            if seen.last().is_some_and(&wanted) {
                return seen;
            }
        }
        panic!("it did not pass; others did: {seen:?}");
    }
}

impl Seen {
    /// `None` for anything other than IP.
    fn parse(frame: &[u8]) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let (from, to) = addresses(&packet)?;
        Some(Self {
            from,
            to,
            udp: match &packet.transport {
                Some(TransportSlice::Udp(udp)) => Some(udp.destination_port()),
                _ => None,
            },
            tcp: match &packet.transport {
                Some(TransportSlice::Tcp(tcp)) => Some(tcp.destination_port()),
                _ => None,
            },
            is_icmpv4: matches!(packet.transport, Some(TransportSlice::Icmpv4(_))),
            is_icmpv6: matches!(packet.transport, Some(TransportSlice::Icmpv6(_))),
        })
    }

    pub(super) fn is_from_client(&self) -> bool {
        CLIENT.contains(&self.from.to_string().as_str())
    }

    /// Returns whether it is a packet in the clear that belongs into the tunnel.
    pub(super) fn is_inner(&self) -> bool {
        let is_inner = |address: IpAddr| {
            let address = address.to_string();
            INNER.iter().any(|prefix| address.starts_with(prefix))
        };
        is_inner(self.from) || is_inner(self.to)
    }

    /// Returns whether it is a datagram of the tunnel's.
    pub(super) fn is_datagram(&self) -> bool {
        let is_to_server = SERVERS.contains(&self.to.to_string().as_str());
        self.is_from_client() && is_to_server && self.udp == Some(WIREGUARD)
    }

    /// Returns whether the kernel tells the server that nobody has the tunnel's port, as between two of its processes.
    pub(super) fn is_refusal(&self) -> bool {
        let is_to_server = SERVERS.contains(&self.to.to_string().as_str());
        self.is_from_client() && is_to_server && self.is_icmpv4
    }

    /// Returns whether a closed kill switch must have dropped it: it is in the clear, and neither a look-up of the
    /// endpoint's name nor what keeps the link itself working.
    pub(super) fn is_leak(&self) -> bool {
        let is_ours = self.is_from_client() || self.is_inner();
        let to = self.to.to_string();
        let is_near = ["ff02:", "fe80:", "2001:db8:2:"]
            .iter()
            .any(|it| to.starts_with(it));
        let keeps_link = self.is_icmpv6 && is_near;
        let is_lookup = self.udp == Some(DNS) && to == "192.168.1.1";
        is_ours && !self.is_datagram() && !keeps_link && !is_lookup
    }
}

/// Source and destination; `None` for anything other than IP.
pub(super) fn addresses(packet: &SlicedPacket<'_>) -> Option<(IpAddr, IpAddr)> {
    match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) => Some((
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
        )),
        NetSlice::Ipv6(ip) => Some((
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
        )),
        NetSlice::Arp(_) => None,
    }
}
