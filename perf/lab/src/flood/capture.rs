//! Takes datagrams from the wire, to be sent once more.

use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::packet_socket::{Frame, PacketSocket};

/// Hears up to `count` WireGuard messages of this type that go to `to`; fewer if there are no more
/// within `patience`.
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
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6]);
        let packet = packet.ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64).udp(9, 7);
        let mut bytes = Vec::new();
        packet.write(&mut bytes, &[1, 2, 3, 4, 5]).unwrap();
        let whole = bytes.len();
        // The padding of a short frame.
        bytes.extend([0; 3]);
        let cut = |len: usize, host, port| -> Vec<Vec<u8>> {
            let (bytes, segment) = (bytes[..len].to_vec(), Some(2));
            let to = SocketAddrV4::new([10, 0, 0, host].into(), port);
            let frame = Frame { bytes, segment };
            datagrams(&frame, to).map(<[u8]>::to_vec).collect()
        };
        assert_eq!(cut(whole + 3, 1, 7), [&[1, 2][..], &[3, 4], &[5]]);
        assert!(cut(whole + 3, 1, 8).is_empty() && cut(whole + 3, 2, 7).is_empty());
        assert!((0..whole).all(|len| cut(len, 1, 7).is_empty()));
    }
}
