//! Packets from the tunnel, each to the connection or socket that it is for.

use std::{io::ErrorKind, net::IpAddr, sync::Arc, time::Instant};

use smoltcp::socket::tcp::State;

use super::{
    super::{
        arrivals::Arrivals,
        flow::{Flow, Inner},
        listening::Listening,
        room::with_room,
        table::Table,
    },
    Engine,
};
use convoy_packet::{
    counters::Dropped,
    datagram::{self, Received},
    icmp::{self, Kind, Report},
    packet::{ICMPV4, ICMPV6, IPV6_HEADER, Packet, TCP, UDP, is_unicast},
    segment::{ACK, FIN, Plain, RST, SYN, Segment, Tuple, write_segment},
    vnet::{VNET_LEN, VnetHeader},
};

impl Engine {
    /// Takes a message of this length.
    pub(super) fn take(&mut self, buffer: &[u8], length: usize) {
        let shared = Arc::clone(&self.shared);
        let counters = &shared.counters;
        counters.received.add(1);
        let message = buffer.get(..length).and_then(|it| it.split_first_chunk());
        let Some((vnet, packet)) = message else {
            return counters.drop(Dropped::Malformed);
        };
        counters.received_bytes.add(packet.len() as u64);
        let vnet: &[u8; VNET_LEN] = vnet;
        let outcome = match Packet::parse(VnetHeader::parse(*vnet), packet) {
            Ok(packet) => self.handle(&packet),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            counters.drop(reason);
        }
    }

    fn handle(&mut self, packet: &Packet<'_>) -> Result<(), Dropped> {
        let shared = Arc::clone(&self.shared);
        let gateway = match shared.owns(packet.destination) {
            true => None,
            false => Some(shared.gateway_to(packet.destination)?),
        };
        if !is_unicast(packet.source) || shared.owns(packet.source) {
            return Err(Dropped::BadSource);
        }
        if let Some(fragment) = packet.fragment {
            let now = shared.now().total_micros();
            let sender = shared.peer_of(packet.source);
            let counters = &shared.counters;
            let whole = self.fragments.add(packet, fragment, sender, now, counters);
            return match whole {
                Some(whole) => {
                    let whole = Packet::parse(VnetHeader::default(), &whole)?;
                    self.handle_whole(&whole, gateway)
                }
                None => Ok(()),
            };
        }
        self.handle_whole(packet, gateway)
    }

    /// Handles a packet for the stack, or else for an address that the gateway leads to.
    fn handle_whole(
        &mut self,
        packet: &Packet<'_>,
        gateway: Option<&Arrivals>,
    ) -> Result<(), Dropped> {
        match packet.protocol {
            TCP => self.handle_segment(packet, gateway),
            UDP => self.handle_datagram(packet, gateway),
            ICMPV4 | ICMPV6 => self.handle_icmp(packet, gateway),
            _ => gateway.map_or(Err(Dropped::UnknownProtocol), |it| it.push(packet)),
        }
    }

    fn handle_segment(
        &mut self,
        packet: &Packet<'_>,
        gateway: Option<&Arrivals>,
    ) -> Result<(), Dropped> {
        if packet.source.is_ipv6() && packet.payload_at != IPV6_HEADER {
            // smoltcp knows no extension headers before TCP.
            let (vnet, bytes) = packet.without_extensions();
            return self.handle_segment(&Packet::parse(vnet, &bytes)?, gateway);
        }
        if !packet.has_right_checksum() {
            return Err(Dropped::BadChecksum);
        }
        let segment = Segment::parse(packet.payload()).ok_or(Dropped::Malformed)?;
        let tuple = Tuple {
            local: (packet.destination, segment.destination_port).into(),
            remote: (packet.source, segment.source_port).into(),
        };
        let found = self.shared.table().find(&tuple);
        if let Some(flow) = found {
            let mut inner = flow.lock();
            // It may have left the table meanwhile.
            if inner.slot.is_some() {
                if inner.is_doubtful(&segment) {
                    // An end that has forgotten the connection resets it now.
                    self.limit_answers(packet)?;
                    return inner.challenge(&self.shared, &segment);
                }
                inner.receive(&self.shared, packet, &segment)?;
                self.touch(&flow, &mut inner);
                return Ok(());
            }
        }
        self.handle_stray(packet, &segment, tuple, gateway)
    }

    fn touch(&mut self, flow: &Arc<Flow>, inner: &mut Inner) {
        if !std::mem::replace(&mut inner.is_touched, true) {
            self.touched.push(Arc::clone(flow));
        }
    }

    /// A segment that belongs to no connection.
    fn handle_stray(
        &mut self,
        packet: &Packet<'_>,
        segment: &Segment,
        tuple: Tuple,
        gateway: Option<&Arrivals>,
    ) -> Result<(), Dropped> {
        let mut table = self.shared.table();
        let is_first = segment.flags & (SYN | ACK | RST) == SYN;
        if is_first {
            table.time_wait.forget(&tuple);
            if let Some(gateway) = gateway {
                return gateway.push(packet);
            }
            if let Some(listening) = table.listener_at(tuple.local) {
                let listening = Arc::clone(listening);
                drop(table);
                return self.open(packet, segment, tuple, listening);
            }
        }
        let waiting = table.time_wait.find(&tuple);
        drop(table);
        if segment.has(RST) {
            return Ok(());
        }
        if let Some(last) = waiting {
            if segment.has(FIN) || segment.payload_len > 0 {
                self.answer(packet, |into| write_segment(into, tuple, last))?;
            }
            return Ok(());
        }
        let reset = match segment.has(ACK) {
            true => Plain {
                flags: RST,
                sequence: segment.acknowledged,
                ..Plain::default()
            },
            false => Plain {
                flags: RST | ACK,
                acknowledged: segment.end(),
                ..Plain::default()
            },
        };
        self.answer(packet, |into| write_segment(into, tuple, reset))?;
        Err(Dropped::NobodyListens)
    }

    /// The other end begins a connection.
    fn open(
        &mut self,
        packet: &Packet<'_>,
        segment: &Segment,
        tuple: Tuple,
        listening: Arc<Listening>,
    ) -> Result<(), Dropped> {
        let shared = Arc::clone(&self.shared);
        let insert = Table::insert_half_open;
        let (flow, oldest) = shared.open((packet, segment), tuple, listening, insert)?;
        self.touch(&flow, &mut flow.lock());
        if let Some(oldest) = oldest {
            shared.counters.drop(Dropped::HalfOpen);
            shared.fail(&mut oldest.lock(), ErrorKind::TimedOut);
        }
        Ok(())
    }

    fn handle_datagram(
        &mut self,
        packet: &Packet<'_>,
        gateway: Option<&Arrivals>,
    ) -> Result<(), Dropped> {
        let received = datagram::parse(packet)?;
        let Received {
            from,
            to,
            payload,
            class,
        } = received;
        let table = self.shared.table();
        let bound = match gateway {
            Some(_) => table.bound_flow(&Tuple {
                local: to,
                remote: from,
            }),
            None => table.bound_at(to),
        };
        let bound = bound.cloned();
        drop(table);
        let Some(bound) = bound else {
            if let Some(gateway) = gateway {
                return gateway.push_datagrams(packet, &received, &self.shared.counters);
            }
            self.answer(packet, |into| icmp::write_port_unreachable(into, packet))?;
            return Err(Dropped::NobodyListens);
        };
        if payload.is_empty() {
            self.shared.counters.datagrams_in.add(1);
            return bound.push(from, class, payload);
        }
        let each = packet.vnet.datagram_len().unwrap_or(payload.len());
        for datagram in payload.chunks(each) {
            self.shared.counters.datagrams_in.add(1);
            if let Err(reason) = bound.push(from, class, datagram) {
                self.shared.counters.drop(reason);
            }
        }
        Ok(())
    }

    fn handle_icmp(
        &mut self,
        packet: &Packet<'_>,
        gateway: Option<&Arrivals>,
    ) -> Result<(), Dropped> {
        let protocol = if packet.source.is_ipv4() {
            ICMPV4
        } else {
            ICMPV6
        };
        if packet.protocol != protocol {
            return Err(Dropped::UnknownProtocol);
        }
        if !icmp::is_intact(packet) {
            return Err(Dropped::BadChecksum);
        }
        if let Some(report) = icmp::parse_error(packet) {
            self.handle_error(packet.source, report);
            return Ok(());
        }
        if let Some((tuple, mtu)) = icmp::parse_too_big(packet) {
            self.learn_mtu(packet.source, &tuple, mtu);
            return Ok(());
        }
        let is_request = matches!(packet.payload().first(), Some(8 | 128));
        if is_request {
            if let Some(gateway) = gateway {
                return gateway.push(packet);
            }
            self.answer(packet, |into| icmp::write_echo(into, packet).unwrap_or(0))?;
        }
        Ok(())
    }

    /// Heeds an error that `router` tells about a connection, if it is behind the peer of that.
    fn handle_error(&mut self, router: IpAddr, report: Report) {
        let found = self.shared.table().find(&report.tuple);
        let Some(flow) = found.filter(|flow| flow.peer == self.shared.peer_of(router)) else {
            return;
        };
        let mut inner = flow.lock();
        if !inner.has_in_flight(report.sequence) {
            // Forged, or too late.
            return;
        }
        match report.kind {
            // RFC 5461: an error does not end a connection that is established.
            Kind::Failed(error) if inner.state() == State::SynSent => {
                self.shared.fail(&mut inner, error);
            }
            Kind::Failed(_) => {}
            Kind::TooBig(mtu) => {
                if inner.limit_mtu(&self.shared, mtu) {
                    self.shared.counters.path_mtu_changes.add(1);
                    self.touch(&flow, &mut inner);
                }
            }
        }
    }

    /// Notes the MTU of the path of a socket's datagrams, if `router` is behind the peer that they go to.
    fn learn_mtu(&mut self, router: IpAddr, tuple: &Tuple, mtu: usize) {
        let shared = &self.shared;
        let is_on_path = shared.peer_of(router) == shared.peer_of(tuple.remote.ip());
        let has_sent = {
            let table = shared.table();
            table.bound_flow(tuple).is_some() || table.bound_at(tuple.local).is_some()
        };
        if let IpAddr::V6(host) = tuple.remote.ip()
            && is_on_path
            && has_sent
            && shared.path_mtus.learn(host, mtu, shared.now())
        {
            shared.counters.path_mtu_changes.add(1);
        }
    }

    /// Sends a packet that `write` makes to the sender of one, unless there were too many lately.
    fn answer(
        &mut self,
        to: &Packet<'_>,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<(), Dropped> {
        self.limit_answers(to)?;
        let shared = &self.shared;
        with_room(|room| {
            let length = write(&mut room[VNET_LEN..]);
            if length == 0 {
                return Err(Dropped::Malformed);
            }
            room[..VNET_LEN].fill(0);
            let sent = shared
                .device
                .try_send(&room[..VNET_LEN + length], &shared.counters);
            sent.map_err(|_| Dropped::DeviceFull)?;
            shared.counters.count_sent(length, false);
            Ok(())
        })
    }

    /// Counts an answer to a packet; fails if there were too many lately.
    fn limit_answers(&mut self, to: &Packet<'_>) -> Result<(), Dropped> {
        let peer = self.shared.peer_of(to.source);
        match self.answers.take(peer, Instant::now()) {
            true => Ok(()),
            false => Err(Dropped::TooManyErrors),
        }
    }
}
