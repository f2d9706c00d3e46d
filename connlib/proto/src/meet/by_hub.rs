//! Messages to a peer that travel through the hub: WireGuard's, in UDP, inside the session with the hub.
//!
//! To the hub they are packets from one of its peers to another. They never pass through the TUN: a node that knows the
//! peer takes them out, and the kernel of any other answers that the port is closed.

use std::{net::IpAddr, time::Duration};

use convoy_aead::Open;
use convoy_paths::Origin;
use convoy_types::Datagram;

use crate::{
    counters::DropReason,
    handshake::Way,
    inbound::is_handshake,
    messages::{DATA_HEADER, DATA_OVERHEAD, LONGEST_BY_HUB, LONGEST_TO_HUB},
    node::Node,
    outbound::padded_len,
    packet::{self, header_v4, header_v6, pseudo_header, sum},
    timers::jitter,
};

/// The UDP port of these messages at both ends, inside the tunnel.
const PORT: u16 = 51_819;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

impl Node {
    /// Sends a message to the peer `id` by the hub.
    pub(crate) fn send_by_hub(&mut self, id: usize, message: &[u8], now: Duration) {
        let Some((hub, packet)) = self.wrapped(id, message) else {
            return self.counters.drops.add(DropReason::OutboundNoEndpoint, 1);
        };
        let peer = &mut self.peers[hub];
        let Some(endpoint) = peer.endpoint else {
            return self.counters.drops.add(DropReason::OutboundNoEndpoint, 1);
        };
        let session = peer.sessions.sending(now);
        // A message must not overtake the packets held before.
        let Some(session) = session.filter(|_| self.held.is_empty(hub)) else {
            return self.hold(hub, &packet, now);
        };
        let mut buffer = [0; LONGEST_TO_HUB];
        buffer[DATA_HEADER..][..packet.len()].copy_from_slice(&packet);
        let length = padded_len(packet.len(), self.mtu.into()) + DATA_OVERHEAD;
        let counter = session.reserve();
        let Some(datagram) = session.seal_in_place(&self.aead, counter, &mut buffer[..length])
        else {
            return;
        };
        let is_old = session.wants_rekey(now);
        peer.timers.data_sent(now, jitter);
        self.deadlines.arm(hub, &mut peer.timers);
        self.count_sent(hub, packet.len(), length);
        self.push_control(endpoint, datagram);
        if is_old {
            self.initiate(hub, now, false);
        }
    }

    /// Admits a packet from another's prefix that came through the session of `id`, if that is the hub of the other.
    /// Returns whether it was a message; else it is a packet for the TUN.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_by_hub(
        &mut self,
        id: usize,
        packet: &[u8],
        now: Duration,
    ) -> Result<bool, DropReason> {
        let source = packet::source(packet);
        let direct = source.and_then(|source| Some((source, self.direct_at(source, id)?)));
        let (source, direct) = direct.ok_or(DropReason::InboundForeignSource)?;
        let taken = self.take_message_by_hub(direct, source, packet, now);
        taken.map_or(Ok(false), |taken| taken.map(|()| true))
    }

    /// Takes a message of the peer `id` out of a packet; `None` if it has none.
    fn take_message_by_hub(
        &mut self,
        id: usize,
        source: IpAddr,
        packet: &[u8],
        now: Duration,
    ) -> Option<Result<(), DropReason>> {
        let direct = self.peers[id].direct.as_deref()?;
        let is_for_us = self.directs.own.contains(&packet::destination(packet)?);
        let message = packet::udp_payload(packet)?;
        let ports = &packet[packet.len() - message.len() - UDP_HEADER..][..4];
        let [high, low] = PORT.to_be_bytes();
        if !is_for_us || direct.address != source || ports != [high, low, high, low] {
            return None;
        }
        let datagram = Datagram {
            bytes: message,
            from: (source, PORT).into(),
            arrival: None,
            ecn: 0,
        };
        Some(match is_handshake(message) {
            true => self.handle_handshake(datagram, Way::Hub(id), now),
            false => self.open_by_hub(id, datagram, now),
        })
    }

    /// Opens a data message of the peer that came by the hub: a keepalive, or a message about paths.
    fn open_by_hub(
        &mut self,
        id: usize,
        datagram: Datagram<'_>,
        now: Duration,
    ) -> Result<(), DropReason> {
        let bytes = datagram.bytes;
        if bytes.first_chunk() != Some(&[4, 0, 0, 0])
            || !(DATA_OVERHEAD..=LONGEST_BY_HUB).contains(&bytes.len())
        {
            return Err(DropReason::InboundMalformed);
        }
        let incoming = self.find_session(datagram, now)?;
        if incoming.peer != id {
            return Err(DropReason::InboundUnknownSession);
        }
        let mut buffer = [0; LONGEST_BY_HUB];
        let text = &mut buffer[..bytes.len() - DATA_OVERHEAD];
        let session = self.peers[id].sessions.find(incoming.session);
        let session = session.ok_or(DropReason::InboundUnknownSession)?;
        let sealed = &bytes[DATA_HEADER..];
        let open = Open::new(&session.opening, incoming.counter, sealed, text);
        let open = open.map_err(|_| DropReason::InboundMalformed)?;
        if !self.aead.open(&mut [open]).is_authentic(0) {
            return Err(DropReason::InboundBadTag);
        }
        session.window.mark(incoming.counter)?;
        self.record_received(id, &datagram, now);
        self.after_receiving(id, incoming.session, Way::Hub(id), now);
        if text.is_empty() {
            return Ok(());
        }
        self.take_message(id, text, Origin::Hub, now)
    }

    /// The peer at an address that is met through this hub.
    fn direct_at(&self, address: IpAddr, hub: usize) -> Option<usize> {
        let id = self.allowed_ips.search(address)?;
        let direct = self.peers[id].direct.as_deref()?;
        (direct.hub == Some(hub)).then_some(id)
    }

    /// The hub's id, and the packet with this message.
    fn wrapped(&self, id: usize, message: &[u8]) -> Option<(usize, Vec<u8>)> {
        let direct = self.peers[id].direct.as_deref()?;
        let mut own = self.directs.own.iter();
        let own = own.find(|own| own.is_ipv4() == direct.address.is_ipv4())?;
        Some((direct.hub?, udp_packet(*own, direct.address, message)?))
    }
}

/// A packet with a UDP datagram, whose payload is `message` (RFC 768).
fn udp_packet(from: IpAddr, to: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
    let len = UDP_HEADER + message.len();
    let (mut packet, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let addresses = [from.octets(), to.octets()];
            let header = header_v4([&addresses[0], &addresses[1]], UDP, len);
            (header, addresses.concat())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let addresses = [from.octets(), to.octets()];
            let header = header_v6([&addresses[0], &addresses[1]], UDP, len);
            (header, addresses.concat())
        }
        _ => return None,
    };
    let header = packet.len();
    packet.extend([PORT.to_be_bytes(), PORT.to_be_bytes()].concat());
    packet.extend((len as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(message);
    // 0 would mean that there is no checksum.
    let checksum = match !sum(&packet[header..], pseudo_header(&addresses, UDP, len)) {
        0 => u16::MAX,
        checksum => checksum,
    };
    packet[header + 6..][..2].copy_from_slice(&checksum.to_be_bytes());
    Some(packet)
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    #[test]
    fn a_message_is_a_udp_datagram_with_right_checksums() {
        let addresses = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];
        for [from, to] in addresses.map(|pair| pair.map(|it| it.parse().unwrap())) {
            for length in [64, 92, 148, 149] {
                let message = vec![7; length];
                let packet = udp_packet(from, to, &message).unwrap();
                let sliced = SlicedPacket::from_ip(&packet).unwrap();
                let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
                    panic!("{packet:?}")
                };
                assert_eq!(
                    (udp.destination_port(), udp.payload()),
                    (PORT, &message[..])
                );
                let header = udp.to_header();
                let expected = match sliced.net.unwrap() {
                    NetSlice::Ipv4(ip) => {
                        let ip = ip.header().to_header();
                        assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
                        header.calc_checksum_ipv4(&ip, udp.payload())
                    }
                    NetSlice::Ipv6(ip) => {
                        header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(header.checksum, expected.unwrap());
            }
        }
        let mixed = ["10.0.0.1", "fd00::1"].map(|it| it.parse().unwrap());
        assert_eq!(udp_packet(mixed[0], mixed[1], &[7]), None);
    }
}
