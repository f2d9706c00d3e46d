//! Datagrams of a stack, without a socket of smoltcp: they have no state.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use nix::errno::Errno;

use super::{
    counters::Dropped,
    datagram::UDP_HEADER,
    flow::with_room,
    packet::{
        FRAGMENT_HEADER, IPV6_HEADER, UDP, ip_header_len, pseudo_sum, seal_ipv4, transport_sum,
        write_ip_header,
    },
    shared::Shared,
    vnet::{NEEDS_CSUM, VNET_LEN, VnetHeader},
};
use crate::network::Packets;

/// Bytes, and datagrams, that wait to be received.
const QUEUE_BYTES: usize = 256 << 10;
const QUEUE_LENGTH: usize = 1024;

/// The longest packet of IPv4, and the longest payload of one of IPv6.
const LONGEST: usize = 65_535;
/// Where fragments are made, behind the longest message.
const FRAGMENTS_AT: usize = VNET_LEN + IPV6_HEADER + LONGEST;

/// A port that datagrams can be sent to.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) at: SocketAddr,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Length and sender of each datagram.
    datagrams: VecDeque<(usize, SocketAddr)>,
    /// Only this one is heard.
    peer: Option<SocketAddr>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl Bound {
    pub(super) fn new(at: SocketAddr) -> Self {
        Self {
            at,
            queue: Mutex::default(),
        }
    }

    pub(super) fn push(&self, from: SocketAddr, datagram: &[u8]) -> Result<(), Dropped> {
        let mut queue = self.queue();
        if queue.peer.is_some_and(|peer| peer != from) {
            return Err(Dropped::NobodyListens);
        }
        let is_full = queue.datagrams.len() >= QUEUE_LENGTH
            || queue.bytes.len() + datagram.len() > QUEUE_BYTES;
        if is_full {
            return Err(Dropped::QueueFull);
        }
        queue.bytes.extend(datagram);
        queue.datagrams.push_back((datagram.len(), from));
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// The stack has ended.
    pub(super) fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket that a user holds.
#[derive(Debug)]
pub(super) struct StackDatagrams {
    pub(super) shared: Arc<Shared>,
    pub(super) bound: Arc<Bound>,
}

impl Packets for StackDatagrams {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.bound.at)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.shared.source_for(to.ip())?;
        self.bound.queue().peer = Some(to);
        Ok(())
    }

    fn try_send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        if self.shared.is_over() {
            return Err(ErrorKind::NetworkDown.into());
        }
        let to = to
            .or(self.bound.queue().peer)
            .ok_or(ErrorKind::NotConnected)?;
        let at = self.bound.at;
        if to.is_ipv4() != at.is_ipv4() {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let source = match at.ip().is_unspecified() {
            true => self.shared.source_for(to.ip())?,
            false => at.ip(),
        };
        send(&self.shared, (source, at.port()).into(), to, datagram)?;
        self.shared.counters.datagrams_out.add(1);
        Ok(datagram.len())
    }

    fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut queue = self.bound.queue();
        let Some((length, from)) = queue.datagrams.pop_front() else {
            return Err(match queue.is_closed {
                true => ErrorKind::NetworkDown,
                false => ErrorKind::WouldBlock,
            }
            .into());
        };
        let taken = length.min(buffer.len());
        let (first, second) = queue.bytes.as_slices();
        let from_first = taken.min(first.len());
        buffer[..from_first].copy_from_slice(&first[..from_first]);
        buffer[from_first..taken].copy_from_slice(&second[..taken - from_first]);
        queue.bytes.drain(..length);
        Ok((taken, from))
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.bound.queue();
        if queue.is_closed || !queue.datagrams.is_empty() {
            return Poll::Ready(());
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for StackDatagrams {
    fn drop(&mut self) {
        self.shared.table().unbind(self.bound.at);
    }
}

/// Sends a datagram, in fragments if it is longer than the MTU.
fn send(shared: &Shared, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
    let (source, destination) = (from.ip(), to.ip());
    let header = ip_header_len(source);
    let length = UDP_HEADER + datagram.len();
    let is_too_long = length > LONGEST || (from.is_ipv4() && header + length > LONGEST);
    if is_too_long {
        return Err(Errno::EMSGSIZE.into());
    }
    with_room(|room| {
        let udp_at = VNET_LEN + header;
        let udp = &mut room[udp_at..udp_at + length];
        udp[0..2].copy_from_slice(&from.port().to_be_bytes());
        udp[2..4].copy_from_slice(&to.port().to_be_bytes());
        udp[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        udp[6..8].fill(0);
        udp[UDP_HEADER..].copy_from_slice(datagram);
        if header + length > shared.mtu() {
            let sum = match !transport_sum(source, destination, UDP, udp) {
                // Zero would mean that there is none.
                0 => 0xffff,
                sum => sum,
            };
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
            return send_fragments(shared, source, destination, room, udp_at..udp_at + length);
        }
        let sum = pseudo_sum(source, destination, UDP, length);
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        write_ip_header(&mut room[VNET_LEN..], source, destination, UDP, length);
        let vnet = VnetHeader {
            flags: NEEDS_CSUM,
            csum_start: header as u16,
            csum_offset: 6,
            ..VnetHeader::default()
        };
        room[..VNET_LEN].copy_from_slice(&vnet.to_bytes());
        send_message(shared, &room[..udp_at + length])
    })
}

/// Sends a payload, which lies at `payload` in `room`, as fragments.
fn send_fragments(
    shared: &Shared,
    source: IpAddr,
    destination: IpAddr,
    room: &mut [u8],
    payload: std::ops::Range<usize>,
) -> io::Result<()> {
    let header = ip_header_len(source);
    let more = if source.is_ipv4() { 0 } else { FRAGMENT_HEADER };
    let each = (shared.mtu() - header - more) & !7;
    let ident: u32 = rand::random();
    let (room, message) = room.split_at_mut(FRAGMENTS_AT);
    for (index, part) in room[payload.clone()].chunks(each).enumerate() {
        let offset = index * each;
        let is_last = offset + part.len() == payload.len();
        message[..VNET_LEN].fill(0);
        let ip = &mut message[VNET_LEN..];
        let protocol = if source.is_ipv4() { UDP } else { 44 };
        write_ip_header(ip, source, destination, protocol, more + part.len());
        if source.is_ipv4() {
            let flags = (offset / 8) as u16 | u16::from(!is_last) << 13;
            ip[4..6].copy_from_slice(&(ident as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&flags.to_be_bytes());
            seal_ipv4(ip);
        } else {
            let fields = offset as u16 | u16::from(!is_last);
            ip[header..header + 2].copy_from_slice(&[UDP, 0]);
            ip[header + 2..header + 4].copy_from_slice(&fields.to_be_bytes());
            ip[header + 4..header + 8].copy_from_slice(&ident.to_be_bytes());
        }
        let at = header + more;
        ip[at..at + part.len()].copy_from_slice(part);
        send_message(shared, &message[..VNET_LEN + at + part.len()])?;
    }
    Ok(())
}

fn send_message(shared: &Shared, message: &[u8]) -> io::Result<()> {
    shared
        .device
        .try_send(message, &shared.counters)
        .inspect_err(|_| {
            shared.counters.drop(Dropped::DeviceFull);
        })?;
    shared.counters.count_sent(message.len() - VNET_LEN, false);
    Ok(())
}
