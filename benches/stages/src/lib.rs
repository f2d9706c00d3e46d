//! Shared by the stage benches and `make growth`: state machines without a network, packets, and sinks that
//! discard them.
//!
//! A package of its own, because Cargo builds every program of a package before its benches, and linking the
//! others takes minutes.

pub mod packets;

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, SystemTime};

use convoy_proto::{
    Datagram, DatagramSink, Destination, Node, PacketSink, PaddablePacket, Planner, SinkFull,
    Staging,
    config::{AllowedIpUpdate, DeviceUpdate, PeerSnapshot, PeerUpdate, Prefix, PrivateKey},
    noise::Identity,
};

/// Runs the measured part of a bench, whose instructions are counted from its call to its return. It is never
/// inlined, so that the counter finds it by name.
#[inline(never)]
pub fn measured<T>(stage: impl FnOnce() -> T) -> T {
    black_box(stage())
}

/// The time of every event (since boot).
pub const NOW: Duration = Duration::from_secs(1000);

/// A host by its number, from which its key, endpoint and inner address are derived.
#[derive(Clone, Copy, Debug)]
pub struct Host(pub u32);

impl Host {
    /// A state machine with these `peers`.
    pub fn node(self, peers: impl IntoIterator<Item = Host>) -> Node {
        let mut node = Node::default();
        let peers = peers.into_iter().map(|peer| peer.as_peer(peer.outer()));
        let plan = Planner::default().plan(self.configuration(peers.collect()));
        node.apply(plan, NOW);
        node
    }

    /// The configuration with this host's key and `peers`.
    pub fn configuration(self, peers: Vec<PeerUpdate>) -> DeviceUpdate {
        DeviceUpdate {
            private_key: Some(Some(self.key())),
            peers,
            ..DeviceUpdate::default()
        }
    }

    /// This host as a peer of another host, which reaches it at `endpoint`.
    pub fn as_peer(self, endpoint: impl Into<SocketAddr>) -> PeerUpdate {
        let mut peer = PeerUpdate::new(Identity::new(&self.key()).public_key());
        peer.endpoint = Some(endpoint.into());
        let network = Prefix::network_of(self.inner().into(), 32);
        let remove = false;
        let update = network.map(|network| AllowedIpUpdate { network, remove });
        peer.allowed_ips.extend(update);
        peer
    }

    /// The address inside the tunnel.
    pub fn inner(self) -> Ipv4Addr {
        (u32::from(Ipv4Addr::new(10, 0, 0, 0)) + self.0).into()
    }

    /// The address outside the tunnel.
    pub fn outer(self) -> SocketAddrV4 {
        let ip = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + self.0;
        SocketAddrV4::new(ip.into(), 51820)
    }

    /// The private key.
    pub fn key(self) -> PrivateKey {
        let mut key = [7; 32];
        key[4..8].copy_from_slice(&self.0.to_le_bytes());
        PrivateKey(key)
    }
}

/// One of the two hosts of benches without other peers.
pub const HERE: Host = Host(1);
/// The other host.
pub const THERE: Host = Host(2);

/// State machines [`HERE`] and [`THERE`] with a session.
pub fn connected() -> (Node, Node) {
    let mut here = HERE.node([THERE]);
    let mut spokes = [(THERE, THERE.node([HERE]))];
    shake_hands((HERE, &mut here), &mut spokes);
    let [(_, there)] = spokes;
    (here, there)
}

/// Encrypts a packet.
pub fn sealed(node: &mut Node, packet: &mut Packet) -> Vec<u8> {
    let mut kept = Kept::default();
    node.handle_outbound(&mut Some(packet), NOW, &mut Staging::default(), &mut kept);
    kept.0.pop().unwrap_or_default()
}

/// Sets up sessions between `hub`, which is host `own`, and each of `spokes`.
///
/// Hundreds of handshakes per second count as load and get cookie replies; the next attempt then succeeds.
pub fn shake_hands((own, hub): (Host, &mut Node), spokes: &mut [(Host, Node)]) {
    let mut staging = Staging::default();
    for n in 0..spokes.len() {
        let mut packet = Packet::new(spokes[n].0.inner(), 64);
        hub.handle_outbound(&mut Some(&mut packet), NOW, &mut staging, &mut Nowhere);
        // A tick handles no more either.
        exchange((own, hub), spokes, NOW);
    }
    for attempt in 1..4 {
        let now = NOW + attempt * Duration::from_secs(6);
        while hub.poll_timeout().is_some_and(|at| at <= now) {
            let _ = hub.handle_timeout(now);
            exchange((own, hub), spokes, now);
        }
    }
    let peers = hub.snapshot(NOW, SystemTime::now()).peers;
    let is_connected = |peer: &PeerSnapshot| peer.last_handshake.is_some();
    assert!(peers.iter().filter(|p| is_connected(p)).count() == spokes.len());
}

/// Carries handshake messages both ways until there are none; packets held for the handshakes confirm them.
fn exchange((own, hub): (Host, &mut Node), spokes: &mut [(Host, Node)], now: Duration) {
    let mut staging = Staging::default();
    while let Some(control) = hub.poll_control(true) {
        let to = control.destination.to;
        let mut spokes = spokes.iter_mut();
        let Some((spoke, node)) = spokes.find(|(spoke, _)| to == spoke.outer().into()) else {
            continue;
        };
        receive(node, &control.datagram, own, now);
        while let Some(answer) = node.poll_control(true) {
            receive(hub, &answer.datagram, *spoke, now);
        }
        let mut confirmation = Kept::default();
        hub.drain_held(now, &mut staging, &mut confirmation);
        if let Some(datagram) = confirmation.0.last() {
            receive(node, datagram, own, now);
        }
    }
}

/// Lets `node` handle a datagram from `sender`; discards its packet.
pub fn receive(node: &mut Node, datagram: &[u8], sender: Host, now: Duration) {
    let datagrams = datagrams_from(sender, [datagram]);
    let mut slot = Slot {
        memory: [0; 2048],
        reserved: None,
    };
    // INVARIANT: the sink is not full.
    let _ = node.handle_inbound(datagrams, now, &mut slot);
}

/// These payloads as datagrams received from `sender`.
pub fn datagrams_from<'a, T: AsRef<[u8]> + ?Sized + 'a>(
    sender: Host,
    payloads: impl IntoIterator<Item = &'a T>,
) -> impl Iterator<Item = Datagram<'a>> {
    payloads.into_iter().map(move |payload| Datagram {
        bytes: payload.as_ref(),
        from: sender.outer().into(),
        arrival: None,
        ecn: 0,
    })
}

/// An IPv4 packet with room for padding.
#[derive(Debug)]
pub struct Packet {
    bytes: Vec<u8>,
    len: usize,
}

impl Packet {
    /// A packet of `len` bytes to `destination`; its source is 0.0.0.0.
    pub fn new(destination: Ipv4Addr, len: usize) -> Self {
        Self::between(Ipv4Addr::UNSPECIFIED, destination, len)
    }

    /// A packet of `len` bytes.
    pub fn between(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> Self {
        let mut bytes = packets::Flow { from, to }.udp(len);
        bytes.resize(len + 15, 0);
        Self { bytes, len }
    }
}

impl PaddablePacket for Packet {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }
}

/// Discards datagrams.
#[derive(Debug)]
pub struct Nowhere;

impl DatagramSink for Nowhere {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn append(&mut self, _: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        black_box(datagram);
        Ok(())
    }
}

/// Keeps all datagrams in order.
#[derive(Debug, Default)]
pub struct Kept(pub Vec<Vec<u8>>);

impl DatagramSink for Kept {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn append(&mut self, _: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        self.0.push(datagram.to_vec());
        Ok(())
    }
}

/// Discards a packet.
struct Slot {
    memory: [u8; 2048],
    reserved: Option<usize>,
}

impl PacketSink for Slot {
    fn reserve(&mut self, len: usize) -> bool {
        self.reserved.replace(len).is_none()
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.slot(0).into_iter()
    }

    fn slot(&mut self, _: usize) -> Option<&mut [u8]> {
        self.reserved.map(|len| &mut self.memory[..len])
    }

    fn commit(&mut self, _: usize, len: usize) {
        black_box(&self.memory[..len]);
    }

    fn release(&mut self) {
        self.reserved = None;
    }
}
