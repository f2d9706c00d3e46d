//! Packets as a kernel makes them, built by a library that the data path does not use.

use std::net::Ipv4Addr;

use etherparse::{PacketBuilder, checksum::Sum16BitWords};

/// Bytes of the virtio header before each packet that a TUN read returns.
pub const VNET_LEN: usize = 10;

/// Flag for an incomplete checksum.
const NEEDS_CSUM: u8 = 1;
const IPV4_HEADER: usize = 20;
/// Protocol number, `VIRTIO_NET_HDR_GSO_*`, length of the header, and place of the checksum in it.
type Transport = (u8, u8, usize, usize);
const TCP: Transport = (6, 1, 20, 16);
const UDP: Transport = (17, 5, 8, 6);
const TTL: u8 = 64;
const PORTS: (u16, u16) = (4242, 5201);
const WINDOW: u16 = 65_000;

/// Source and destination of packets inside the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The source.
    pub from: Ipv4Addr,
    /// The destination.
    pub to: Ipv4Addr,
}

/// A flow from [`HERE`](crate::HERE) to [`THERE`](crate::THERE).
pub const FLOW: Flow = Flow {
    from: Ipv4Addr::new(10, 0, 0, 1),
    to: Ipv4Addr::new(10, 0, 0, 2),
};

impl Flow {
    /// A UDP packet of `len` bytes, headers included.
    pub fn udp(self, len: usize) -> Vec<u8> {
        let payload = vec![7; len - IPV4_HEADER - UDP.2];
        let mut packet = Vec::new();
        // INVARIANT: a Vec accepts every write, and no bench asks for more than a packet holds.
        PacketBuilder::ipv4(self.from.octets(), self.to.octets(), TTL)
            .udp(PORTS.0, PORTS.1)
            .write(&mut packet, &payload)
            .expect("a packet of that length");
        packet
    }

    /// A TCP segment with `payload`, beginning at `sequence`.
    fn tcp(self, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4(self.from.octets(), self.to.octets(), TTL)
            .tcp(PORTS.0, PORTS.1, sequence, WINDOW)
            .ack(1)
            .write(&mut packet, payload)
            .expect("a packet of that length");
        packet
    }

    /// Consecutive TCP segments of one stream, each with `payload_len` bytes.
    pub fn tcp_train(self, segments: usize, payload_len: usize) -> Vec<Vec<u8>> {
        let payload = vec![7; payload_len];
        let segments = (0..segments).map(|n| self.tcp((n * payload_len) as u32, &payload));
        segments.collect()
    }

    /// A TCP super-packet after its virtio header.
    pub fn tcp_super_packet(self, segments: usize, payload_len: usize) -> Vec<u8> {
        let packet = self.tcp(0, &vec![7; segments * payload_len]);
        framed(packet, TCP, payload_len)
    }

    /// A UDP super-packet after its virtio header.
    pub fn udp_super_packet(self, segments: usize, payload_len: usize) -> Vec<u8> {
        let packet = self.udp(IPV4_HEADER + UDP.2 + segments * payload_len);
        framed(packet, UDP, payload_len)
    }
}

/// A single packet after an empty virtio header.
pub fn unsegmented(packet: &[u8]) -> Vec<u8> {
    [&[0; VNET_LEN], packet].concat()
}

/// Prepends the virtio header of a super-packet, and puts the pseudo-header's sum where the checksum was: the
/// kernel leaves it for the reader to complete.
fn framed(mut packet: Vec<u8>, transport: Transport, segment_len: usize) -> Vec<u8> {
    let (protocol, gso_type, transport_len, field) = transport;
    let len = (packet.len() - IPV4_HEADER) as u16;
    let pseudo = Sum16BitWords::new().add_slice(&packet[12..IPV4_HEADER]);
    let pseudo = pseudo.add_2bytes([0, protocol]);
    let pseudo = pseudo.add_2bytes(len.to_be_bytes());
    let at = IPV4_HEADER + field;
    packet[at..at + 2].copy_from_slice(&(!pseudo.ones_complement()).to_ne_bytes());
    let words = [
        (IPV4_HEADER + transport_len) as u16,
        segment_len as u16,
        IPV4_HEADER as u16,
        field as u16,
    ];
    let words = words.into_iter().flat_map(u16::to_ne_bytes);
    let header = [NEEDS_CSUM, gso_type].into_iter().chain(words);
    header.chain(packet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_tun::{Coalesce, stages};

    #[test]
    fn a_super_packet_is_cut_into_the_train_that_it_stands_for() {
        let read = FLOW.tcp_super_packet(45, 1380);
        let mut batch = stages::Intake::default().batch(&[&read]).unwrap();
        let mut train = FLOW.tcp_train(45, 1380).into_iter();
        while let Some(packet) = batch.next() {
            let segment = train.next().unwrap();
            // The kernel increments the identification; a packet that must not be fragmented needs none.
            assert_eq!(packet.bytes()[20..], segment[20..]);
        }
        assert!(train.next().is_none());
        let read = FLOW.udp_super_packet(10, 1000);
        let batch = stages::Intake::default().batch(&[&read]).unwrap();
        assert_eq!((batch.packets(), batch.malformed()), (10, 0));
    }

    #[test]
    fn a_train_is_coalesced_into_one_write() {
        let (tcp, udp) = (true, true);
        let mut outlet = stages::Outlet::new(Coalesce { tcp, udp });
        let mut batch = outlet.take().unwrap();
        for packet in FLOW.tcp_train(40, 1380) {
            batch.slot(packet.len()).unwrap().copy_from_slice(&packet);
            batch.commit(packet.len());
        }
        assert_eq!(outlet.write(batch), 1);
    }
}
