//! UDP headers.

use std::net::SocketAddr;

use super::{counters::Dropped, packet::Packet};

/// Bytes of a header.
pub const UDP_HEADER: usize = 8;

/// The payload of a datagram, or of several of the same length.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The bytes behind the header.
    pub payload: &'a [u8],
    /// The traffic class: DSCP and ECN.
    pub class: u8,
}

/// Reads the header and checks the sum.
pub fn parse<'a>(packet: &Packet<'a>) -> Result<Received<'a>, Dropped> {
    let datagram = packet.payload();
    let header: &[u8; UDP_HEADER] = datagram.first_chunk().ok_or(Dropped::Malformed)?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let end = match packet.vnet.datagram_len() {
        Some(_) => datagram.len(),
        None => half(4).into(),
    };
    let payload = datagram.get(UDP_HEADER..end).ok_or(Dropped::Malformed)?;
    let has_no_checksum = half(6) == 0 && packet.source.is_ipv4();
    if !has_no_checksum && !packet.has_right_checksum() {
        return Err(Dropped::BadChecksum);
    }
    Ok(Received {
        from: SocketAddr::new(packet.source, half(0)),
        to: SocketAddr::new(packet.destination, half(2)),
        payload,
        class: packet.class(),
    })
}
