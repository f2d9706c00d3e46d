//! A packet through the state machine: routing, padding, encryption; the datagram is thrown away.

use std::{net::Ipv4Addr, time::Duration};

use convoy_proto::{
    DatagramSink, Full, Node, OutboundPacket, PacketSink, Planner, STACK_BUFFER_BYTES, Transmit,
    config::{AllowedIp, AllowedIpUpdate, DeviceUpdate, PeerUpdate, PrivateKey},
    inbound::Inbound,
    noise::Identity,
};
use divan::{Bencher, black_box, counter::BytesCount};

const NOW: Duration = Duration::from_secs(1000);

fn main() {
    divan::main();
}

#[divan::bench(args = [64, 512, 1420])]
fn encapsulate(bencher: Bencher<'_, '_>, len: usize) {
    let mut node = connected();
    let mut packet = Packet::new(len);
    let mut buffer = [0; STACK_BUFFER_BYTES];
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        node.handle_outbound(&mut packet, NOW, &mut buffer, &mut Nowhere);
    });
}

/// A node with a session to its only peer.
fn connected() -> Node {
    let (mut a, mut b) = (host(1, 2), host(2, 1));
    let mut buffer = [0; STACK_BUFFER_BYTES];
    a.handle_outbound(&mut Packet::new(64), NOW, &mut buffer, &mut Nowhere);
    loop {
        let (from_a, from_b) = (a.poll_control(), b.poll_control());
        if from_a.is_none() && from_b.is_none() {
            break;
        }
        for (control, node, from) in [(from_a, &mut b, 1), (from_b, &mut a, 2)] {
            let Some(control) = control else { continue };
            let inbound = Inbound {
                datagram: &control.datagram,
                from: ([192, 0, 2, from], 51820).into(),
                arrival: None,
                ecn: 0,
            };
            let _ = node.handle_inbound(inbound, NOW, &mut Slot(vec![0; 2048]));
        }
    }
    a.drain_held(NOW, &mut buffer, &mut Nowhere);
    a
}

fn host(own: u8, peer: u8) -> Node {
    let mut update = PeerUpdate::new(Identity::new(&PrivateKey([peer; 32])).public_key());
    update.endpoint = Some(([192, 0, 2, peer], 51820).into());
    update.allowed_ips = AllowedIp::new(Ipv4Addr::new(10, 0, 0, peer).into(), 32)
        .map(|network| AllowedIpUpdate {
            network,
            remove: false,
        })
        .into_iter()
        .collect();
    let mut node = Node::default();
    let plan = Planner::default().plan(DeviceUpdate {
        private_key: Some(Some(PrivateKey([own; 32]))),
        peers: vec![update],
        ..DeviceUpdate::default()
    });
    node.apply(plan, NOW);
    node
}

struct Packet {
    bytes: Vec<u8>,
    len: usize,
}

impl Packet {
    /// An IPv4 packet to 10.0.0.2.
    fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + 15];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        bytes[16..20].copy_from_slice(&[10, 0, 0, 2]);
        Self { bytes, len }
    }
}

impl OutboundPacket for Packet {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        &self.bytes[..len]
    }
}

struct Nowhere;

impl DatagramSink for Nowhere {
    fn has_room(&self) -> bool {
        true
    }

    fn append(&mut self, _: &Transmit, datagram: &[u8]) -> Result<(), Full> {
        black_box(datagram);
        Ok(())
    }
}

struct Slot(Vec<u8>);

impl PacketSink for Slot {
    fn slot(&mut self, _: usize) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }

    fn commit(&mut self, _: usize) {}
}
