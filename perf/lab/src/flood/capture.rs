//! Captures datagrams for replay.

use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::packet_socket::PacketSocket;

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
    while captured.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(frame) = socket.receive(left)? else {
            break;
        };
        let message = payload(&frame, to).filter(|m| m.starts_with(&[message_type, 0, 0, 0]));
        captured.extend(message.map(<[u8]>::to_vec));
        if left.is_zero() {
            break;
        }
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
