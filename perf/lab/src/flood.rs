//! Attacks a daemon's port: datagrams at a constant rate, from tens of thousands of addresses or from a
//! forged one.
//!
//! ```text
//!  Generator, 198.18.0.0/16 as sources ── IP stack ── veth ──▶ IP stack ──▶ the daemon's UDP socket
//! ```
//!
//! The attacker's namespace owns all source addresses, so an ordinary socket can choose one for each
//! datagram (`IP_PKTINFO`, ip(7)).

mod datagrams;

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};

pub use datagrams::Datagrams;

use crate::error::{Doing as _, Result};
use crate::namespace::Namespace;
use crate::packet_socket::PacketSocket;
use crate::traffic::Pace;

/// Source of a flood: 65,536 addresses of the network reserved for benchmarks (RFC 2544). The target
/// needs a route back to it.
pub const SOURCES: &str = "198.18.0.0/16";
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Sends floods to one socket address.
#[derive(Debug)]
pub struct Generator {
    socket: UdpSocket,
    target: SocketAddrV4,
    /// The first source address, and the number of addresses after it.
    sources: (Ipv4Addr, u64),
    /// Number of calls so far, from which sources and payloads follow.
    calls: u64,
}

/// The extent of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flooded {
    /// Datagrams sent; each segment of a train counts.
    pub datagrams: u64,
    /// Datagrams that the kernel had no room for.
    pub refused: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

impl Generator {
    /// Opens a socket in `namespace`, as root, that forges the address and port `source`; `None` for those of
    /// [`SOURCES`].
    pub fn new(
        namespace: &Namespace,
        source: Option<SocketAddrV4>,
        target: SocketAddrV4,
    ) -> Result<Self> {
        let (network, sources, port) = match source {
            None => (SOURCES.to_owned(), (FIRST_SOURCE, 0x1_0000), 0),
            Some(one) => (format!("{}/32", one.ip()), (*one.ip(), 1), one.port()),
        };
        namespace.link().own_network(&network)?;
        let socket = namespace.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        Ok(Self {
            socket: socket.doing(namespace.step("start a flood"))?,
            target,
            sources,
            calls: 0,
        })
    }

    /// Sends `datagrams` repeatedly, `rate` per second, until `end` is set.
    pub fn run(
        &mut self,
        datagrams: &Datagrams,
        rate: f64,
        end: &AtomicBool,
    ) -> io::Result<Flooded> {
        let pace = Pace::new(rate / datagrams.per_call(), u64::MAX);
        let mut flooded = Flooded::default();
        let took = pace.drive(
            |_| end.load(Ordering::Relaxed),
            |due| (0..due).try_for_each(|_| self.send(datagrams, &mut flooded)),
        )?;
        flooded.seconds = took.as_secs_f64();
        Ok(flooded)
    }

    fn send(&mut self, datagrams: &Datagrams, flooded: &mut Flooded) -> Result<(), Errno> {
        let (payload, segment) = datagrams.payload(self.calls);
        let (first, count) = self.sources;
        let source = first.to_bits() + (self.calls % count) as u32;
        self.calls += 1;
        let count = datagrams.count(payload.len());
        match send_from(&self.socket, source.into(), self.target, payload, segment) {
            Ok(()) => flooded.datagrams += count,
            // A queue on the way is full: lost, as in a router.
            Err(Errno::ENOBUFS) => flooded.refused += count,
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

/// Sends a datagram, or a train that the kernel cuts into datagrams of `segment` bytes. `source` is one of the
/// host's own addresses, or 0.0.0.0 to let the kernel choose.
pub fn send_from(
    socket: &UdpSocket,
    source: Ipv4Addr,
    to: SocketAddrV4,
    payload: &[u8],
    segment: Option<u16>,
) -> Result<(), Errno> {
    let source = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr {
            s_addr: source.to_bits().to_be(),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    let mut control = vec![ControlMessage::Ipv4PacketInfo(&source)];
    control.extend(segment.as_ref().map(ControlMessage::UdpGsoSegments));
    let (fd, to) = (socket.as_raw_fd(), SockaddrIn::from(to));
    let payload = [IoSlice::new(payload)];
    sendmsg(fd, &payload, &control, MsgFlags::empty(), Some(&to)).map(drop)
}

/// Captures up to `count` WireGuard messages of this type sent to `to`; fewer if no more come within
/// `patience`. The sender's interface must cut batches; otherwise a batch is captured as one message.
pub fn capture(
    socket: &PacketSocket,
    to: SocketAddrV4,
    message_type: u8,
    count: usize,
    patience: Duration,
) -> io::Result<Vec<Vec<u8>>> {
    let deadline = Instant::now() + patience;
    let mut captured = Vec::new();
    while captured.len() < count && Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        let frame = socket.receive(left)?;
        let message = frame.as_deref().and_then(|frame| payload(frame, to));
        let wanted = message.filter(|m| m.starts_with(&[message_type, 0, 0, 0]));
        captured.extend(wanted.map(<[u8]>::to_vec));
    }
    Ok(captured)
}

/// The UDP payload of an Ethernet frame sent to `to`.
fn payload(frame: &[u8], to: SocketAddrV4) -> Option<&[u8]> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (packet.net, packet.transport)
    else {
        return None;
    };
    let is_to = ip.header().destination_addr() == *to.ip() && udp.destination_port() == to.port();
    is_to.then(|| udp.payload())
}
