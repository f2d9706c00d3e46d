//! Two nodes, a wire between them that the test can inspect, and time that the test advances.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod weather;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime},
};

use convoy_aead::Aead;
use convoy_proto::{
    Arrival, Datagram, DatagramSink, Destination, Node, PacketSink, PacketSource, PaddablePacket,
    Planner, SinkFull, Staging,
    config::{
        AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix, PresharedKey, PrivateKey, PublicKey,
        Snapshot,
    },
    counters::DropReason,
    noise::Identity,
};

pub const SECOND: Duration = Duration::from_secs(1);

/// One node with everything around it.
pub struct Host {
    pub node: Node,
    pub planner: Planner,
    pub address: SocketAddr,
    pub inner: IpAddr,
    pub key: PrivateKey,
    /// Packets delivered to the TUN.
    pub delivered: Vec<Vec<u8>>,
    /// Datagrams on their way to the other host.
    pub wire: VecDeque<Vec<u8>>,
    /// Slots left in the packet sink.
    pub slots: usize,
}

/// Two hosts that are each other's peer.
pub struct Pair {
    pub a: Host,
    pub b: Host,
    pub now: Duration,
}

impl Pair {
    /// Both are configured; only `a` knows the other's endpoint.
    pub fn new() -> Self {
        let mut pair = Self {
            a: Host::new(1),
            b: Host::new(2),
            now: Duration::from_secs(10_000),
        };
        let mut to_b = pair.b.as_peer();
        to_b.endpoint = Some(pair.b.address);
        let to_a = pair.a.as_peer();
        pair.a.set_peer(to_b, pair.now);
        pair.b.set_peer(to_a, pair.now);
        pair
    }

    /// A pair after its first handshake and one packet each way.
    pub fn connected() -> Self {
        let mut pair = Self::new();
        pair.a_sends(b"hello");
        pair.settle();
        pair.b_sends(b"hello");
        pair.settle();
        assert_eq!((pair.a.delivered.len(), pair.b.delivered.len()), (1, 1));
        pair.a.delivered.clear();
        pair.b.delivered.clear();
        pair
    }

    pub fn a_sends(&mut self, payload: &[u8]) {
        let packet = ipv4(self.a.inner, self.b.inner, payload);
        self.a.send(&packet, self.now);
    }

    pub fn b_sends(&mut self, payload: &[u8]) {
        let packet = ipv4(self.b.inner, self.a.inner, payload);
        self.b.send(&packet, self.now);
    }

    /// Lets time pass: handles due timers and carries the datagrams that they send.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let due = [self.a.node.poll_timeout(), self.b.node.poll_timeout()];
            let next = due.into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            self.a.tick(self.now);
            self.b.tick(self.now);
            self.settle();
        }
        self.now = end;
    }

    /// Carries datagrams both ways until there are none.
    pub fn settle(&mut self) {
        loop {
            let (to_b, to_a) = (self.a.take_wire(self.now), self.b.take_wire(self.now));
            if to_b.is_empty() && to_a.is_empty() {
                return;
            }
            let (from_a, from_b) = (self.a.address, self.b.address);
            to_b.iter()
                .for_each(|d| self.b.receive(d, from_a, self.now));
            to_a.iter()
                .for_each(|d| self.a.receive(d, from_b, self.now));
        }
    }
}

impl Host {
    pub fn new(n: u8) -> Self {
        Self::with(n, Aead::auto())
    }

    pub fn with(n: u8, aead: Aead) -> Self {
        let mut host = Self {
            node: Node::new(aead),
            planner: Planner::default(),
            address: ([192, 0, 2, n], 51820).into(),
            inner: [10, 0, 0, n].into(),
            key: PrivateKey([n; 32]),
            delivered: Vec::new(),
            wire: VecDeque::new(),
            slots: usize::MAX,
        };
        host.update(
            DeviceUpdate {
                private_key: Some(Some(host.key.clone())),
                ..DeviceUpdate::default()
            },
            Duration::ZERO,
        );
        host
    }

    pub fn public_key(&self) -> PublicKey {
        Identity::new(&self.key).public_key()
    }

    /// This host as a peer in the other side's configuration.
    pub fn as_peer(&self) -> PeerUpdate {
        let mut peer = PeerUpdate::new(self.public_key());
        peer.allowed_ips = vec![allow(self.inner, 32)];
        peer
    }

    pub fn update(&mut self, update: DeviceUpdate, now: Duration) {
        let plan = self.planner.plan(update);
        self.node.apply(plan, now);
    }

    pub fn set_peer(&mut self, peer: PeerUpdate, now: Duration) {
        let update = DeviceUpdate {
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        self.update(update, now);
        self.tick(now);
    }

    pub fn send(&mut self, packet: &[u8], now: Duration) {
        self.send_from(&mut TestPacket::new(packet), now);
    }

    pub fn send_from(&mut self, packet: &mut impl PaddablePacket, now: Duration) {
        let mut sink = Sent::default();
        let mut staging = Staging::default();
        self.node
            .handle_outbound(&mut Some(packet), now, &mut staging, &mut sink);
        self.wire.extend(sink.0.into_iter().map(|(_, bytes)| bytes));
    }

    /// Sends all packets in one call, to a sink that has room for all.
    pub fn send_all(&mut self, packets: &[Vec<u8>], now: Duration) {
        let sent = self.sent_for(packets, now);
        self.wire.extend(sent.into_iter().map(|(_, bytes)| bytes));
    }

    /// Returns the datagrams that packets become in one call, and where they go.
    pub fn sent_for(&mut self, packets: &[Vec<u8>], now: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut packets = Burst(packets.iter().map(|p| TestPacket::new(p)).collect());
        let mut sink = Sent::default();
        self.node
            .handle_outbound(&mut packets, now, &mut Staging::default(), &mut sink);
        sink.targeted()
    }

    /// Returns the control datagrams, then those that were held, and where they go.
    pub fn take_sent(&mut self, now: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut sink = Sent::default();
        self.node
            .drain_held(now, &mut Staging::default(), &mut sink);
        let node = &mut self.node;
        let next = || node.poll_control(true).or_else(|| node.poll_control(false));
        let mut sent: Vec<_> = std::iter::from_fn(next)
            .map(|it| (it.destination.to, it.datagram.to_vec()))
            .collect();
        sent.extend(sink.targeted());
        sent
    }

    /// Receives datagrams in one call; returns the number of those that were handled.
    pub fn receive_all(&mut self, all: &[Vec<u8>], from: SocketAddr, now: Duration) -> usize {
        let arrival = Some(Arrival {
            address: self.address.ip(),
            interface: 2,
        });
        let datagrams = all.iter().map(|bytes| Datagram {
            bytes,
            from,
            arrival,
            ecn: 0,
        });
        let mut sink = Delivered {
            packets: &mut self.delivered,
            slots: &mut self.slots,
            reserved: Vec::new(),
        };
        let handled = self.node.handle_inbound(datagrams, now, &mut sink);
        assert_eq!(handled.is_sink_full, handled.datagrams < all.len());
        handled.datagrams
    }

    pub fn receive(&mut self, datagram: &[u8], from: SocketAddr, now: Duration) {
        assert_eq!(self.offer(datagram, from, now), Ok(()));
    }

    pub fn offer(&mut self, bytes: &[u8], from: SocketAddr, now: Duration) -> Result<(), SinkFull> {
        let arrival = Arrival {
            address: self.address.ip(),
            interface: 2,
        };
        self.offer_at(bytes, from, arrival, now)
    }

    /// Receives a datagram that was sent to another address of this host.
    pub fn receive_at(&mut self, bytes: &[u8], from: SocketAddr, arrival: Arrival, now: Duration) {
        assert_eq!(self.offer_at(bytes, from, arrival, now), Ok(()));
    }

    fn offer_at(
        &mut self,
        bytes: &[u8],
        from: SocketAddr,
        arrival: Arrival,
        now: Duration,
    ) -> Result<(), SinkFull> {
        let datagram = Datagram {
            bytes,
            from,
            arrival: Some(arrival),
            ecn: 0,
        };
        let mut sink = Delivered {
            packets: &mut self.delivered,
            slots: &mut self.slots,
            reserved: Vec::new(),
        };
        let handled = self.node.handle_inbound([datagram], now, &mut sink);
        (handled.datagrams == 1).then_some(()).ok_or(SinkFull)
    }

    pub fn tick(&mut self, now: Duration) {
        while self.node.handle_timeout(now) {}
    }

    /// Everything that the host sends, in order.
    pub fn take_wire(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let mut sink = Sent::default();
        self.node
            .drain_held(now, &mut Staging::default(), &mut sink);
        let mut sent: Vec<_> = std::iter::from_fn(|| self.node.poll_control(true))
            .map(|control| control.datagram.to_vec())
            .collect();
        sent.extend(self.wire.drain(..));
        sent.extend(sink.0.into_iter().map(|(_, bytes)| bytes));
        sent
    }

    pub fn drops(&mut self, reason: DropReason) -> u64 {
        self.node.counters().drops.of(reason)
    }

    pub fn snapshot(&mut self, now: Duration) -> Snapshot {
        self.node.snapshot(now, SystemTime::now())
    }
}

pub fn allow(address: IpAddr, prefix: u8) -> AllowedIpUpdate {
    AllowedIpUpdate {
        network: Prefix::network_of(address, prefix).expect("a prefix length within the family"),
        remove: false,
    }
}

pub fn preshared(byte: u8) -> Option<Option<PresharedKey>> {
    Some(Some(PresharedKey([byte; 32])))
}

/// An IPv4 packet; the state machine ignores header checksums.
pub fn ipv4(from: IpAddr, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else {
        panic!("the addresses must be IPv4");
    };
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

pub fn payload(packet: &[u8]) -> &[u8] {
    &packet[20..]
}

pub struct TestPacket {
    bytes: Vec<u8>,
    len: usize,
}

impl TestPacket {
    pub fn new(packet: &[u8]) -> Self {
        let mut bytes = packet.to_vec();
        bytes.extend([0; 15]);
        Self {
            bytes,
            len: packet.len(),
        }
    }
}

impl PaddablePacket for TestPacket {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }
}

/// Packets for one call.
pub struct Burst(pub VecDeque<TestPacket>);

impl PacketSource for Burst {
    type Packet<'a> = TestPacket;

    fn next(&mut self) -> Option<TestPacket> {
        self.0.pop_front()
    }
}

/// Datagrams, and where they went.
#[derive(Default)]
pub struct Sent(pub Vec<(Destination, Vec<u8>)>);

impl Sent {
    fn targeted(self) -> Vec<(SocketAddr, Vec<u8>)> {
        let targeted = |(destination, bytes): (Destination, _)| (destination.to, bytes);
        self.0.into_iter().map(targeted).collect()
    }
}

impl DatagramSink for Sent {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        self.0.push((*destination, datagram.to_vec()));
        Ok(())
    }
}

struct Delivered<'a> {
    packets: &'a mut Vec<Vec<u8>>,
    slots: &'a mut usize,
    reserved: Vec<Vec<u8>>,
}

impl PacketSink for Delivered<'_> {
    fn reserve(&mut self, len: usize) -> bool {
        let left = self.slots.checked_sub(1);
        if let Some(left) = left {
            *self.slots = left;
            self.reserved.push(vec![0; len]);
        }
        left.is_some()
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.reserved.iter_mut().map(Vec::as_mut_slice)
    }

    fn slot(&mut self, n: usize) -> Option<&mut [u8]> {
        self.reserved.get_mut(n).map(Vec::as_mut_slice)
    }

    fn commit(&mut self, n: usize, len: usize) {
        self.packets.push(self.reserved[n][..len].to_vec());
    }

    fn release(&mut self) {
        self.reserved.clear();
    }
}
