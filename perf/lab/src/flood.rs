//! Attacks on a daemon's port: datagrams at a constant rate, from tens of thousands of addresses.
//!
//! ```text
//!  Generator ── Ethernet frames (packet socket) ──▶ veth ──▶ IP stack ──▶ the daemon's UDP socket
//!    198.18.0.0/16 as sources
//! ```
//!
//! Frames are made here and handed to the interface below the sender's IP stack, so that they may
//! claim any source address, and a datagram costs the sender about a microsecond.

mod capture;
mod datagrams;
mod frame;

use std::io::{self, IoSlice};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};

pub use capture::capture;
pub use datagrams::Datagrams;
use frame::Template;

use crate::{error::LabError, namespace::Namespace, packet_socket::PacketSocket, traffic::Pace};

/// Where a flood comes from: 65,536 addresses of a network for measurements (RFC 2544). The target
/// needs a route back to it.
pub const SOURCES: &str = "198.18.0.0/16";
/// Frames in one call.
const BATCH: usize = 64;

/// Sends floods from an interface to one socket address behind it.
#[derive(Debug)]
pub struct Generator {
    socket: PacketSocket,
    template: Template,
    /// Frames so far: their addresses and ports follow from their numbers.
    frames: u64,
}

/// The size of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flooded {
    /// Datagrams sent; each segment of a train is one.
    pub datagrams: u64,
    /// Datagrams that the kernel had no room for.
    pub refused: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Generator {
    /// Opens a packet socket on `interface`, whose other end has the Ethernet address `neighbour`.
    pub fn new(
        namespace: &Namespace,
        interface: &str,
        neighbour: [u8; 6],
        target: SocketAddrV4,
    ) -> Result<Self, LabError> {
        let own = namespace.link().ethernet_address(interface)?;
        Ok(Self {
            socket: PacketSocket::sending(namespace, interface)?,
            template: Template::new(own, neighbour, target),
            frames: 0,
        })
    }

    /// Sends `datagrams` again and again, `rate` of them a second, until `end` is set.
    pub fn run(
        &mut self,
        datagrams: &Datagrams,
        rate: f64,
        end: &AtomicBool,
    ) -> io::Result<Flooded> {
        let pace = Pace::new(rate / datagrams.per_frame(), u64::MAX);
        let mut flooded = Flooded::default();
        let is_over = |_| end.load(Ordering::Relaxed);
        let took = pace.drive(is_over, |mut due| {
            while due > 0 {
                let frames = due.min(BATCH as u64);
                self.send(datagrams, frames, &mut flooded)?;
                due -= frames;
            }
            Ok::<_, io::Error>(())
        })?;
        flooded.seconds = took.as_secs_f64();
        Ok(flooded)
    }

    fn send(
        &mut self,
        datagrams: &Datagrams,
        frames: u64,
        flooded: &mut Flooded,
    ) -> io::Result<()> {
        let numbers = self.frames..self.frames + frames;
        self.frames = numbers.end;
        let payloads: Vec<&[u8]> = numbers.clone().map(|n| datagrams.payload(n)).collect();
        let headers: Vec<_> = numbers
            .zip(&payloads)
            .map(|(n, payload)| self.template.header(n, payload.len(), datagrams.segment()))
            .collect();
        let parts: Vec<_> = headers
            .iter()
            .zip(&payloads)
            .map(|(header, payload)| [IoSlice::new(header), IoSlice::new(payload)])
            .collect();
        let sent = match self.socket.send_many(&parts) {
            Ok(sent) => sent,
            // A full queue on the way: lost, as in a router.
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => 0,
            Err(e) => return Err(e),
        };
        let count = |payloads: &[&[u8]]| payloads.iter().map(|p| datagrams.in_payload(p)).sum();
        let (sent, refused): (u64, u64) = (count(&payloads[..sent]), count(&payloads[sent..]));
        flooded.datagrams += sent;
        flooded.refused += refused;
        Ok(())
    }
}
