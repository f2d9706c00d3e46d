//! Three hosts and their wires.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_aead::Aead;
use convoy_packet::{
    datagram,
    packet::{Packet, UDP, ip_header_len, transport_sum, write_ip_header},
    vnet::VnetHeader,
};
use convoy_proto::{
    Datagram, DatagramSink, Destination, PacketSink, Planner, SinkFull, Staging,
    config::{DeviceUpdate, PeerUpdate, PrivateKey, PublicKey},
    counters::DropReason,
    noise::Identity,
};
use convoy_via::Hop;

use crate::common::{Burst, Host, SECOND, TestPacket, allow, ipv4, payload};

/// Address of the client inside its tunnel to the first hop, by family.
fn own(is_ipv4: bool) -> IpAddr {
    match is_ipv4 {
        true => [10, 9, 0, 1].into(),
        false => "fd00:9::1".parse().expect("an address"),
    }
}

/// A client, its first hop and its second hop.
pub(crate) struct World {
    pub(crate) client: Host,
    pub(crate) hop: Hop,
    pub(crate) first: Host,
    pub(crate) second: Host,
    pub(crate) first_address: SocketAddr,
    /// The address of the second hop, which the first one reaches.
    pub(crate) second_address: SocketAddr,
    pub(crate) now: Duration,
    /// Datagrams on their way to the first hop.
    pub(crate) wire: Vec<Vec<u8>>,
    /// Datagrams that have left for the first hop so far.
    pub(crate) sent_to_first: usize,
    /// Room in the queue of the sockets.
    pub(crate) room: usize,
    /// Bytes of IP payload that fit between the hops; a longer packet of the second hop is cut.
    pub(crate) cut: usize,
    /// ECN bits of datagrams from the second hop, as a router on the way sets them.
    pub(crate) mark: u8,
    /// ECN bits of datagrams from the first hop.
    pub(crate) mark_of_first: u8,
    /// ECN bits of the last datagrams to the first hop.
    pub(crate) marks: Vec<u8>,
    /// Whether all datagrams to the first hop are lost.
    pub(crate) is_first_silent: bool,
}

impl World {
    /// Nobody has shaken hands.
    pub(crate) fn new(is_ipv4: bool) -> Self {
        let (mut client, mut first, mut second) = (Host::new(1), Host::new(2), Host::new(3));
        let mut hop = Hop::new(Aead::auto());
        let now = Duration::from_secs(10_000);
        let first_address = first.address;
        let second_address = match is_ipv4 {
            true => second.address,
            false => "[2001:db8::3]:51820".parse().expect("an address"),
        };
        let key = PrivateKey([9; 32]);
        let mut to_first = first.as_peer();
        to_first.endpoint = Some(first_address);
        to_first.allowed_ips = vec![allow([0; 4].into(), 0), allow([0; 16].into(), 0)];
        let update = DeviceUpdate {
            private_key: Some(Some(key.clone())),
            peers: vec![to_first],
            ..DeviceUpdate::default()
        };
        hop.node().apply(Planner::default().plan(update), now);
        let mut to_hop = PeerUpdate::new(public(&key));
        to_hop.allowed_ips = vec![allow(own(true), 24), allow(own(false), 64)];
        first.set_peer(to_hop, now);
        let mut to_second = second.as_peer();
        to_second.endpoint = Some(second_address);
        client.set_peer(to_second, now);
        second.set_peer(client.as_peer(), now);
        let mut world = Self {
            client,
            hop,
            first,
            second,
            first_address,
            second_address,
            now,
            wire: Vec::new(),
            sent_to_first: 0,
            room: usize::MAX,
            cut: usize::MAX,
            mark: 0,
            mark_of_first: 0,
            marks: Vec::new(),
            is_first_silent: false,
        };
        world.place();
        world
    }

    /// After both handshakes and a packet each way.
    pub(crate) fn connected(is_ipv4: bool) -> Self {
        let mut world = Self::new(is_ipv4);
        world.client_sends(b"hello");
        world.settle();
        world.second_sends(b"hello");
        world.settle();
        assert_eq!(
            world.arrived(),
            (vec![b"hello".to_vec()], vec![b"hello".to_vec()])
        );
        world.client.delivered.clear();
        world.second.delivered.clear();
        world.marks.clear();
        world
    }

    pub(crate) fn place(&mut self) {
        self.hop.place(&[own(true), own(false)], 50_000);
    }

    pub(crate) fn client_sends(&mut self, payload: &[u8]) {
        self.client_sends_all(&[payload.to_vec()]);
    }

    pub(crate) fn client_sends_all(&mut self, payloads: &[Vec<u8>]) {
        let mut packets = self.packets(payloads);
        self.send_packets(&mut packets);
    }

    pub(crate) fn packets(&self, payloads: &[Vec<u8>]) -> Burst {
        let packet = |payload: &Vec<u8>| {
            let mut packet = ipv4(self.client.inner, self.second.inner, payload);
            // "Don't fragment": the sender wants to hear of narrow paths.
            packet[6] = 0x40;
            TestPacket::new(&packet)
        };
        Burst(payloads.iter().map(packet).collect())
    }

    /// Lets the client send while the sockets' queue has room.
    pub(crate) fn send_packets(&mut self, packets: &mut Burst) {
        let mut sink = ToFirst {
            wire: &mut self.wire,
            marks: &mut self.marks,
            room: self.room,
            first: self.first_address,
        };
        let (inner, mut staging) = (&mut self.client.node, Staging::default());
        self.hop
            .drain_held(inner, self.now, &mut staging, &mut sink);
        self.hop
            .handle_outbound(inner, packets, self.now, &mut staging, &mut sink);
    }

    pub(crate) fn second_sends(&mut self, payload: &[u8]) {
        let packet = ipv4(self.second.inner, self.client.inner, payload);
        self.second.send(&packet, self.now);
    }

    /// Payloads that have arrived at the second hop and at the client.
    pub(crate) fn arrived(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let payloads = |host: &Host| {
            host.delivered
                .iter()
                .map(|it| payload(it).to_vec())
                .collect()
        };
        (payloads(&self.second), payloads(&self.client))
    }

    pub(crate) fn hop_drops(&mut self, reason: DropReason) -> u64 {
        self.hop.node().counters().drops.of(reason)
    }

    /// Carries datagrams until there are none.
    pub(crate) fn settle(&mut self) {
        while self.carry() {}
    }

    /// Lets time pass, with all timers.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.settle();
        let end = self.now + time;
        while self.now < end {
            self.now += SECOND / 4;
            let now = self.now;
            while self.hop.handle_timeout(now) {}
            for host in [&mut self.client, &mut self.first, &mut self.second] {
                host.tick(now);
            }
            self.settle();
        }
    }

    /// Carries what is on its way by one wire; returns whether there was anything.
    pub(crate) fn carry(&mut self) -> bool {
        self.send_packets(&mut Burst(Default::default()));
        self.send_control();
        let sent = self.deliver_to_first();
        let mut any = sent > 0;
        for packet in std::mem::take(&mut self.first.delivered) {
            any = true;
            self.reach_second(&packet);
        }
        let mut from_second = self.second.take_wire(self.now);
        let controls = std::iter::from_fn(|| self.second.node.poll_control(false));
        from_second.extend(controls.map(|it| it.datagram.to_vec()));
        for datagram in from_second {
            any = true;
            let to = own(self.second_address.is_ipv4());
            let from = self.second_address;
            let mut packet = udp(from.ip(), from.port(), to, self.hop.port(), &datagram);
            if from.is_ipv4() {
                packet[1] |= self.mark;
                convoy_packet::packet::seal_ipv4(&mut packet);
            }
            for part in cut(packet, self.cut, any_ident(&datagram)) {
                self.first.send(&part, self.now);
            }
        }
        let to_client = self.first.take_wire(self.now);
        any |= !to_client.is_empty();
        self.reach_client(&to_client) || any
    }

    /// Carries datagrams to the first hop; returns their number.
    pub(crate) fn deliver_to_first(&mut self) -> usize {
        let sent = std::mem::take(&mut self.wire);
        self.sent_to_first += sent.len();
        let from = ([192, 0, 2, 1], 51820).into();
        for datagram in sent.iter().filter(|_| !self.is_first_silent) {
            self.first.receive(datagram, from, self.now);
        }
        sent.len()
    }

    /// Lets the client receive datagrams of the first hop; returns whether any of the second hop were handled.
    pub(crate) fn reach_client(&mut self, datagrams: &[Vec<u8>]) -> bool {
        let (from, ecn) = (self.first_address, self.mark_of_first);
        let all = datagrams.iter().map(|bytes| Datagram {
            bytes,
            from,
            arrival: None,
            ecn,
        });
        let handled = self.hop.handle_inbound(all, self.now);
        assert_eq!(handled.datagrams, datagrams.len());
        let mut sink = Written(
            &mut self.client.delivered,
            &mut self.client.slots,
            Vec::new(),
        );
        let delivered = self
            .hop
            .deliver(&mut self.client.node, self.now, &mut sink, |_| true);
        delivered.datagrams > 0
    }

    /// Lets handshake messages leave.
    pub(crate) fn leave(&mut self) {
        self.send_control();
    }

    fn send_control(&mut self) {
        let mut sink = ToFirst {
            wire: &mut self.wire,
            marks: &mut self.marks,
            room: self.room,
            first: self.first_address,
        };
        let inner = &mut self.client.node;
        self.hop.send_control(inner, self.now, &mut sink);
        self.hop.hear_errors(inner, self.now);
        let controls = std::iter::from_fn(|| self.hop.node().poll_control(true));
        self.wire.extend(controls.map(|it| it.datagram.to_vec()));
        assert!(self.hop.node().poll_control(false).is_none());
    }

    fn reach_second(&mut self, packet: &[u8]) {
        let packet = Packet::parse(VnetHeader::default(), packet).expect("a packet");
        let datagram = datagram::parse(&packet).expect("a datagram");
        self.second
            .receive(datagram.payload, datagram.from, self.now);
    }
}

fn public(key: &PrivateKey) -> PublicKey {
    Identity::new(key).public_key()
}

/// The number of the fragments of a datagram.
fn any_ident(datagram: &[u8]) -> u16 {
    let sum = datagram
        .iter()
        .fold(0u32, |sum, byte| sum * 31 % 65_521 + u32::from(*byte));
    sum as u16
}

/// Cuts a packet without options as routers and hosts do, the last fragment first.
pub(crate) fn cut(packet: Vec<u8>, most: usize, ident: u16) -> Vec<Vec<u8>> {
    let is_ipv4 = packet[0] >> 4 == 4;
    let header = if is_ipv4 { 20 } else { 40 };
    let (head, payload) = packet.split_at(header);
    if payload.len() <= most {
        return vec![packet];
    }
    let most = most & !7;
    let count = payload.len().div_ceil(most);
    let parts = payload.chunks(most).enumerate().map(|(n, bytes)| {
        let (offset, has_more) = ((n * most) as u16, n + 1 < count);
        let mut part = head.to_vec();
        if is_ipv4 {
            let length = (header + bytes.len()) as u16;
            part[2..4].copy_from_slice(&length.to_be_bytes());
            part[4..6].copy_from_slice(&ident.to_be_bytes());
            let place = (offset / 8) | if has_more { 0x2000 } else { 0 };
            part[6..8].copy_from_slice(&place.to_be_bytes());
            convoy_packet::packet::seal_ipv4(&mut part);
        } else {
            let length = (8 + bytes.len()) as u16;
            part[4..6].copy_from_slice(&length.to_be_bytes());
            part[6] = 44;
            part.extend([UDP, 0]);
            part.extend((offset | u16::from(has_more)).to_be_bytes());
            part.extend(u32::from(ident).to_be_bytes());
        }
        part.extend(bytes);
        part
    });
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

/// A packet with a UDP datagram.
pub(crate) fn udp(
    from: IpAddr,
    from_port: u16,
    to: IpAddr,
    to_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let header = ip_header_len(from);
    let length = 8 + payload.len();
    let mut packet = vec![0; header];
    packet.extend(from_port.to_be_bytes());
    packet.extend(to_port.to_be_bytes());
    packet.extend((length as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    write_ip_header(&mut packet, from, to, UDP, length);
    let sum = !transport_sum(from, to, UDP, &packet[header..]);
    packet[header + 6..][..2].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The queue of the sockets, which takes datagrams to the first hop alone.
struct ToFirst<'a> {
    wire: &'a mut Vec<Vec<u8>>,
    marks: &'a mut Vec<u8>,
    room: usize,
    first: SocketAddr,
}

impl DatagramSink for ToFirst<'_> {
    fn room(&self) -> usize {
        self.room
    }

    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        assert_eq!(destination.to, self.first, "a datagram leaves in the clear");
        self.room = self.room.checked_sub(1).ok_or(SinkFull)?;
        self.wire.push(datagram.to_vec());
        self.marks.push(destination.ecn);
        Ok(())
    }
}

/// The TUN, with the number of slots that it has left.
struct Written<'a>(&'a mut Vec<Vec<u8>>, &'a mut usize, Vec<Vec<u8>>);

impl PacketSink for Written<'_> {
    fn reserve(&mut self, len: usize) -> bool {
        let left = self.1.checked_sub(1);
        if let Some(left) = left {
            *self.1 = left;
            self.2.push(vec![0; len]);
        }
        left.is_some()
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.2.iter_mut().map(Vec::as_mut_slice)
    }

    fn slot(&mut self, n: usize) -> Option<&mut [u8]> {
        self.2.get_mut(n).map(Vec::as_mut_slice)
    }

    fn commit(&mut self, n: usize, len: usize) {
        self.0.push(self.2[n][..len].to_vec());
    }

    fn release(&mut self) {
        self.2.clear();
    }
}
