//! Two nodes in memory: a packet goes in at one and comes out of the other, after a handshake.
//!
//! `cargo run -p convoy-proto --example two_nodes`

use std::time::Duration;

use convoy_aead::Aead;
use convoy_proto::{
    Datagram, DatagramSink, Destination, Node, PacketSink, PaddablePacket, Planner, SinkFull,
    Staging,
    config::{AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix, PrivateKey},
    noise::Identity,
};

/// Addresses of both ends, by number.
const OUTER: [&str; 2] = ["192.0.2.1:51820", "192.0.2.2:51820"];
const INNER: [[u8; 4]; 2] = [[10, 8, 0, 1], [10, 8, 0, 2]];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Time since boot. It stands still here; a real caller also calls `handle_timeout`.
    let now = Duration::from_secs(1);
    let mut nodes = [node(0, now)?, node(1, now)?];
    let mut packet = Packet::between(INNER[0], INNER[1], b"hello");
    let mut wire = Wire::default();
    nodes[0].handle_outbound(
        &mut Some(&mut packet),
        now,
        &mut Staging::default(),
        &mut wire,
    );
    let mut tun = Tun::default();
    // The packet waits until initiation and response have gone to and fro.
    while tun.packets.is_empty() {
        for from in 0..2 {
            for datagram in sent(&mut nodes[from], &mut wire, now) {
                println!("node {from} sends {} bytes", datagram.len());
                let datagram = Datagram {
                    bytes: &datagram,
                    from: OUTER[from].parse()?,
                    arrival: None,
                    ecn: 0,
                };
                let handled = nodes[1 - from].handle_inbound([datagram], now, &mut tun);
                assert!(!handled.is_sink_full, "a datagram must be offered again");
            }
        }
    }
    for packet in &tun.packets {
        println!(
            "node 1 delivers {:?}",
            String::from_utf8_lossy(&packet[20..])
        );
    }
    Ok(())
}

/// Makes one of the two nodes, which knows the other as its peer.
fn node(number: usize, now: Duration) -> Result<Node, Box<dyn std::error::Error>> {
    let key = |number: usize| PrivateKey([number as u8 + 1; 32]);
    let other = 1 - number;
    let mut peer = PeerUpdate::new(Identity::new(&key(other)).public_key());
    peer.endpoint = Some(OUTER[other].parse()?);
    peer.allowed_ips = vec![AllowedIpUpdate {
        network: Prefix::host(INNER[other].into()),
        remove: false,
    }];
    let update = DeviceUpdate {
        private_key: Some(Some(key(number))),
        peers: vec![peer],
        ..DeviceUpdate::default()
    };
    let mut node = Node::new(Aead::auto());
    node.apply(Planner::default().plan(update), now);
    Ok(node)
}

/// Takes everything that a node sends: handshakes first, then data.
fn sent(node: &mut Node, wire: &mut Wire, now: Duration) -> Vec<Vec<u8>> {
    node.drain_held(now, &mut Staging::default(), wire);
    let control = std::iter::from_fn(|| node.poll_control(true));
    let mut sent: Vec<_> = control.map(|it| it.datagram.to_vec()).collect();
    sent.append(&mut wire.0);
    sent
}

/// An IP packet in a buffer with room for padding.
struct Packet {
    buffer: Vec<u8>,
    length: usize,
}

impl Packet {
    fn between(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Self {
        let length = 20 + payload.len();
        let mut buffer = vec![0x45, 0, 0, length as u8, 0, 0, 0, 0, 64, 253, 0, 0];
        for part in [&from[..], &to, payload, &[0; 15]] {
            buffer.extend(part);
        }
        Self { buffer, length }
    }
}

impl PaddablePacket for Packet {
    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }
}

/// Datagrams in place of a socket.
#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl DatagramSink for Wire {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn append(&mut self, _: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        self.0.push(datagram.to_vec());
        Ok(())
    }
}

/// Packets in place of a TUN.
#[derive(Default)]
struct Tun {
    packets: Vec<Vec<u8>>,
    slots: Vec<Vec<u8>>,
}

impl PacketSink for Tun {
    fn reserve(&mut self, len: usize) -> bool {
        self.slots.push(vec![0; len]);
        true
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.slots.iter_mut().map(Vec::as_mut_slice)
    }

    fn slot(&mut self, n: usize) -> Option<&mut [u8]> {
        self.slots.get_mut(n).map(Vec::as_mut_slice)
    }

    fn commit(&mut self, n: usize, len: usize) {
        self.packets.push(self.slots[n][..len].to_vec());
    }

    fn release(&mut self) {
        self.slots.clear();
    }
}
