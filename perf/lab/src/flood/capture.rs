//! Takes datagrams from the wire, to be sent once more.

use std::{
    io,
    net::SocketAddrV4,
    time::{Duration, Instant},
};

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
    const UDP: u8 = 17;
    let (ethernet, packet) = frame.split_at_checked(14)?;
    let is_udp = ethernet[12..] == [0x08, 0x00] && *packet.get(9)? == UDP;
    let header = usize::from(packet[0] & 0xf) * 4;
    let total = u16::from_be_bytes([packet[2], packet[3]]).into();
    let udp = packet.get(header..total)?;
    let is_to =
        packet.get(16..20)? == to.ip().octets() && udp.get(2..4)? == to.port().to_be_bytes();
    (is_udp && is_to).then(|| udp.get(8..)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_train_is_cut_and_what_goes_elsewhere_is_left_out() {
        let mut bytes = vec![0; 14 + 20 + 8];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        bytes[14 + 2..][..2].copy_from_slice(&33u16.to_be_bytes());
        bytes[14 + 9] = 17;
        bytes[14 + 16..][..4].copy_from_slice(&[10, 0, 0, 1]);
        bytes[14 + 22..][..2].copy_from_slice(&7u16.to_be_bytes());
        // Five bytes, and the padding of a short frame.
        bytes.extend([1, 2, 3, 4, 5, 0, 0, 0]);
        let frame = |bytes: &[u8]| Frame {
            bytes: bytes.to_vec(),
            segment: Some(2),
        };
        let whole = frame(&bytes);
        let to = |host, port| SocketAddrV4::new([10, 0, 0, host].into(), port);
        let cut: Vec<_> = datagrams(&whole, to(1, 7)).collect();
        assert_eq!(cut, [&[1, 2][..], &[3, 4], &[5]]);
        assert_eq!(datagrams(&whole, to(1, 8)).count(), 0);
        assert_eq!(datagrams(&whole, to(2, 7)).count(), 0);
        for len in 0..14 + 33 {
            assert_eq!(
                datagrams(&frame(&bytes[..len]), to(1, 7)).count(),
                0,
                "{len}"
            );
        }
    }
}
