//! What is sent back where there is no flow: RST, and ICMP errors.

use std::{
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use super::{Peers, budget::Budget, gateway::Ends, inlet::Inlet};
use crate::stack::{
    Dropped,
    counters::Counters,
    icmp::{Unreachable, write_unreachable},
    packet::{FRAGMENT_HEADER, IPV6_HEADER, Packet, is_unicast, seal_ipv4, write_ip_header},
    segment::{ACK, RST, Segment, Tuple, write_segment},
    vnet::VnetHeader,
};

/// The least MTU of IPv6.
const MIN_MTU: usize = 1_280;
/// A fragment header follows.
const IPV6_FRAGMENT: u8 = 44;
/// Longest error, with its header.
const LONGEST: usize = 1_280;

/// Writes into the inlet.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) inlet: Inlet,
    pub(super) counters: Counters,
    peers: Arc<Peers>,
    own: Vec<IpAddr>,
    mtu: u16,
    errors: Mutex<Budget>,
}

impl Answers {
    /// Those to some peers, which are so many, given this gateway's addresses and the MTU of the tunnel.
    pub(super) fn new(
        device: OwnedFd,
        (peers, count): (Arc<Peers>, u32),
        own: Vec<IpAddr>,
        mtu: u16,
    ) -> io::Result<Self> {
        Ok(Self {
            inlet: Inlet::new(device)?,
            counters: Counters::default(),
            peers,
            own,
            mtu,
            errors: Mutex::new(Budget::new(count, Instant::now())),
        })
    }

    /// Has the namespace accept the connection that a SYN begins.
    pub(super) fn admit(&self, syn: &[u8]) {
        self.inlet.write(syn, &self.counters);
    }

    /// Resets the connection that a SYN would begin.
    pub(super) fn reset(&self, ends: Ends, syn: &Segment) {
        let ends = Tuple {
            local: ends.target,
            remote: ends.peer,
        };
        self.error(ends.remote.ip(), |into| {
            write_segment(into, ends, RST | ACK, 0, syn.end())
        });
    }

    /// Says that it is forbidden to send a packet.
    pub(super) fn prohibit(&self, packet: &Packet<'_>) {
        self.unreachable(Unreachable::Prohibited, packet);
    }

    /// Says why a packet does not reach its destination.
    pub(super) fn unreachable(&self, why: Unreachable, packet: &Packet<'_>) {
        if !is_unicast(packet.source) || !is_unicast(packet.destination) {
            // RFC 1122, section 3.2.2; RFC 4443, section 2.4.
            return;
        }
        let mut own = self.own.iter();
        let own = own.find(|it| it.is_ipv4() == packet.source.is_ipv4());
        let source = *own.unwrap_or(&packet.destination);
        let ends = (source, packet.source);
        self.error(packet.source, |into| {
            write_unreachable(into, why, ends, packet.bytes)
        });
    }

    /// Says why a packet of a flow does not reach its destination, of which the kernel has kept the header alone.
    pub(super) fn unreachable_flow(
        &self,
        why: Unreachable,
        (source, destination): (IpAddr, IpAddr),
        protocol: u8,
        header: [u8; 8],
    ) {
        let mut bytes = [0; IPV6_HEADER + 8];
        let at = write_ip_header(&mut bytes, source, destination, protocol, header.len());
        bytes[at..at + header.len()].copy_from_slice(&header);
        // It is as it was made.
        if let Ok(packet) = Packet::parse(VnetHeader::default(), &bytes[..at + header.len()]) {
            self.unreachable(why, &packet);
        }
    }

    /// Sends a packet, in fragments if it is longer than the MTU.
    pub(super) fn send(&self, packet: &mut [u8]) {
        let is_short = packet.len() <= self.mtu.into();
        match packet[0] >> 4 {
            _ if is_short => self.inlet.write(packet, &self.counters),
            4 => {
                // The kernel makes the fragments, and takes the packet's identification.
                packet[4..6].copy_from_slice(&rand::random::<[u8; 2]>());
                seal_ipv4(packet);
                self.inlet.write(packet, &self.counters);
            }
            _ => self.send_fragments(packet),
        }
    }

    /// Routers make none of a packet of IPv6 (RFC 8200, section 4.5).
    fn send_fragments(&self, packet: &[u8]) {
        let (header, payload) = packet.split_at(IPV6_HEADER);
        let each = (usize::from(self.mtu).max(MIN_MTU) - IPV6_HEADER - FRAGMENT_HEADER) & !7;
        let ident: [u8; 4] = rand::random();
        for (index, part) in payload.chunks(each).enumerate() {
            let offset = index * each;
            let is_last = offset + part.len() == payload.len();
            let mut fragment = header.to_vec();
            let length = (FRAGMENT_HEADER + part.len()) as u16;
            fragment[4..6].copy_from_slice(&length.to_be_bytes());
            let protocol = std::mem::replace(&mut fragment[6], IPV6_FRAGMENT);
            fragment.extend([protocol, 0]);
            fragment.extend((offset as u16 | u16::from(!is_last)).to_be_bytes());
            fragment.extend(ident);
            fragment.extend(part);
            self.inlet.write(&fragment, &self.counters);
        }
    }

    fn error(&self, to: IpAddr, write: impl FnOnce(&mut [u8]) -> usize) {
        let Some(peer) = self.peers.of(to) else {
            return self.counters.drop(Dropped::BadSource);
        };
        let mut budget = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if !budget.spend(peer, Instant::now()) {
            return self.counters.drop(Dropped::TooManyErrors);
        }
        drop(budget);
        let mut packet = [0; LONGEST];
        let length = write(&mut packet);
        self.inlet.write(&packet[..length], &self.counters);
    }
}
