//! Paced UDP: a sender that keeps to an absolute schedule and a receiver that counts.
//!
//! Every packet begins with 16 bytes: the flow's mark and the packet's number, little-endian.

mod batch;
pub(crate) mod pace;
pub(super) mod priority;
mod receiver;
mod sender;

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::agent::Events;
use super::error::Doing as _;
use super::{End, Event, Flow, Scope, TrafficError, UdpJob};

/// Mark and number at the beginning of each packet.
pub(super) const HEADER: usize = 16;
/// The number of a packet with which a connecting receiver opens the flow.
const HELLO: u64 = u64::MAX;
const HELLO_INTERVAL: Duration = Duration::from_millis(100);
/// How long the first packet of the other end is waited for.
const FIRST_PACKET_PATIENCE: Duration = Duration::from_secs(5);

/// Sends or receives one flow.
pub(super) fn run<W: Write>(
    job: &UdpJob,
    scope: &Scope,
    events: &mut Events<W>,
) -> Result<(), TrafficError> {
    let socket = open(job.end, scope, events)?;
    // Whoever calls from another host shall not have this one's processors before their owner.
    let _precedence = if scope.is_namespace() {
        priority::Precedence::take()
    } else {
        None
    };
    match job.flow {
        Flow::Send => {
            if job.end == End::Listen {
                wait_for_hello(&socket, job, scope)?;
            }
            events.send(&Event::Started)?;
            let sent = sender::send(&socket, job)?;
            events.send(&Event::UdpSent(sent))
        }
        Flow::Receive => {
            let received = receiver::receive(&socket, job)?;
            events.send(&Event::UdpReceived(received))
        }
    }
}

fn open<W: Write>(
    end: End,
    scope: &Scope,
    events: &mut Events<W>,
) -> Result<UdpSocket, TrafficError> {
    let local: SocketAddr = match end {
        End::Listen => scope.bind(),
        End::Connect(SocketAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        End::Connect(SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).doing("bind a UDP socket")?;
    match end {
        End::Listen => {
            // Announced only when the buffer is large: the flow may begin at once.
            receiver::enlarge_buffer(&socket)?;
            let port = socket.local_addr().doing("bind a UDP socket")?.port();
            events.send(&Event::Ready { port })?;
        }
        End::Connect(to) => {
            receiver::enlarge_buffer(&socket)?;
            socket.connect(to).doing("connect a UDP socket")?;
        }
    }
    Ok(socket)
}

/// Learns the receiver's address from its first packet.
fn wait_for_hello(socket: &UdpSocket, job: &UdpJob, scope: &Scope) -> Result<(), TrafficError> {
    let mut packet = [0; HEADER];
    let deadline = Instant::now() + FIRST_PACKET_PATIENCE;
    socket
        .set_read_timeout(Some(HELLO_INTERVAL))
        .doing("set a socket timeout")?;
    while Instant::now() < deadline {
        match socket.recv_from(&mut packet) {
            Ok((_, from)) if scope.admits(from) && parse(&packet) == Some((job.run, HELLO)) => {
                return socket.connect(from).doing("connect a UDP socket");
            }
            Err(error) if !is_timeout(&error) => return Err(error).doing("receive over UDP"),
            Ok(_) | Err(_) => {}
        }
    }
    Err(TrafficError::Timeout("waiting for the UDP receiver"))
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

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        assert_eq!(parse(&header(7, 1 << 40)), Some((7, 1 << 40)));
        assert_eq!(parse(&[0; HEADER - 1]), None);
    }
}
