//! Paced UDP: a sender that keeps to an absolute schedule and a receiver that counts.
//!
//! Every packet begins with 16 bytes: the flow's mark and the packet's number, little-endian.

mod batch;
pub(crate) mod pace;
mod receiver;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::agent::{Events, Scope};
use super::error::Doing as _;
use super::{End, Event, Flow, TrafficError, UdpJob, UdpSent};
use batch::Outbox;
use pace::Pace;

/// Mark and number at the beginning of each packet.
pub(super) const HEADER: usize = 16;
/// The number of a packet with which a connecting receiver opens the flow.
const HELLO: u64 = u64::MAX;
const HELLO_INTERVAL: Duration = Duration::from_millis(100);
/// How long the first packet of the other end is waited for.
const FIRST_PACKET_PATIENCE: Duration = Duration::from_secs(5);
/// The share of its schedule that a sender must have sent in time to have held the rate.
const HELD: f64 = 0.99;
/// How much longer than its schedule a sender goes on, to make up for the last wake-up.
const GRACE: Duration = Duration::from_millis(2);

/// Sends or receives one flow.
pub(super) fn run(
    job: &UdpJob,
    scope: &Scope,
    events: &mut Events<'_>,
) -> Result<(), TrafficError> {
    let socket = scope.open_udp(job.end, 0)?;
    receiver::enlarge_buffer(&socket)?;
    if job.end == End::Listen {
        // Announced only when the buffer is large: the flow may begin at once.
        let port = socket.local_addr().doing("bind a UDP socket")?.port();
        events.send(&Event::Ready { port })?;
    }
    let _precedence = scope.precedence();
    match job.flow {
        Flow::Send => {
            if job.end == End::Listen {
                wait_for_hello(&socket, job, scope)?;
            }
            events.send(&Event::Started)?;
            let sent = send(&socket, job)?;
            events.send(&Event::UdpSent(sent))
        }
        Flow::Receive => {
            let received = receiver::receive(&socket, job)?;
            events.send(&Event::UdpReceived(received))
        }
    }
}

/// Learns the receiver's address from its first packet.
fn wait_for_hello(socket: &UdpSocket, job: &UdpJob, scope: &Scope) -> Result<(), TrafficError> {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    let mut packet = [0; HEADER];
    let deadline = Instant::now() + FIRST_PACKET_PATIENCE;
    let timeout = socket.set_read_timeout(Some(HELLO_INTERVAL));
    timeout.doing("set a socket timeout")?;
    while Instant::now() < deadline {
        match socket.recv_from(&mut packet).map_err(|e| (e.kind(), e)) {
            Ok((_, from)) if scope.admits(from) && packet == header(job.run, HELLO) => {
                return socket.connect(from).doing("connect a UDP socket");
            }
            Ok(_) | Err((WouldBlock | TimedOut | Interrupted | ConnectionRefused, _)) => {}
            Err((_, error)) => return Err(error).doing("receive over UDP"),
        }
    }
    Err(TrafficError::Timeout("waiting for the UDP receiver"))
}

/// Sends `job`'s schedule over a connected socket.
fn send(socket: &UdpSocket, job: &UdpJob) -> Result<UdpSent, TrafficError> {
    let mut outbox = Outbox::new(job.payload, job.run);
    let mut number = 0;
    let deadline = Duration::from_secs_f64(job.seconds) + GRACE;
    let send = |due| {
        let end = number + due;
        while number < end {
            number += match outbox.send(socket, number, end - number) {
                Ok(sent) => sent,
                // A full queue on the way: this packet is lost, as in a router.
                Err(Errno::ENOBUFS) => 1,
                // An ICMP message about an earlier packet; nothing was sent.
                Err(Errno::ECONNREFUSED | Errno::EINTR) => 0,
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    };
    let pace = Pace::new(job.rate_pps, job.packets());
    let took = pace.drive(|now| now > deadline, send);
    Ok(UdpSent {
        seconds: took.doing("send over UDP")?.as_secs_f64(),
        packets: number,
        held_rate: number as f64 >= HELD * job.packets() as f64,
    })
}

fn header(run: u64, number: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&run.to_le_bytes());
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

/// The mark and the number of a packet; none where it is too short.
fn parse(packet: &[u8]) -> Option<(u64, u64)> {
    let (run, rest) = packet.split_first_chunk()?;
    let number = rest.first_chunk()?;
    Some((u64::from_le_bytes(*run), u64::from_le_bytes(*number)))
}
