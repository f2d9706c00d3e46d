//! Takes datagrams from the wire, to be sent once more.

use std::{
    io,
    net::SocketAddrV4,
    time::{Duration, Instant},
};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::packet_socket::{Frame, PacketSocket};

/// Hears up to `count` WireGuard messages of this type that go to `to`; fewer if there are no more
/// within `patience`.
///
/// # Errors
/// As `recv(2)`.
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
        let messages = datagrams(&frame, to).filter(|m| m.starts_with(&[message_type, 0, 0, 0]));
        captured.extend(messages.map(<[u8]>::to_vec));
        if left.is_zero() {
            break;
        }
    }
    captured.truncate(count);
    Ok(captured)
}

/// The datagrams in an Ethernet frame that go to `to`.
fn datagrams(frame: &Frame, to: SocketAddrV4) -> impl Iterator<Item = &[u8]> {
    let payload = payload(&frame.bytes, to).unwrap_or_default();
    let segment = frame.segment.map_or(payload.len(), usize::from);
    payload.chunks(segment.max(1))
}

fn payload(frame: &[u8], to: SocketAddrV4) -> Option<&[u8]> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (packet.net, packet.transport)
    else {
        return None;
    };
    let is_to = ip.header().destination_addr() == *to.ip() && udp.destination_port() == to.port();
    is_to.then(|| udp.payload())
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn a_captured_train_is_cut_and_datagrams_to_others_are_left_out() {
        let packet =
            PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64);
        let mut bytes = Vec::new();
        packet
            .udp(9, 7)
            .write(&mut bytes, &[1, 2, 3, 4, 5])
            .unwrap();
        let whole = bytes.len();
        // The padding of a short frame.
        bytes.extend([0; 3]);
        let frame = |bytes: &[u8]| Frame {
            bytes: bytes.to_vec(),
            segment: Some(2),
        };
        let train = frame(&bytes);
        let to = |host, port| SocketAddrV4::new([10, 0, 0, host].into(), port);
        let cut: Vec<_> = datagrams(&train, to(1, 7)).collect();
        assert_eq!(cut, [&[1, 2][..], &[3, 4], &[5]]);
        assert_eq!(datagrams(&train, to(1, 8)).count(), 0);
        assert_eq!(datagrams(&train, to(2, 7)).count(), 0);
        for len in 0..whole {
            let none = datagrams(&frame(&bytes[..len]), to(1, 7)).count();
            assert_eq!(none, 0, "{len}");
        }
    }
}
