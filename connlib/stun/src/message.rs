//! Binding requests, and answers to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use stun_types::{
    attribute::{AttributeType, XorMappedAddress},
    message::{
        BINDING, MAGIC_COOKIE, Message, MessageClass, MessageHeader, MessageType,
        MessageWriteMutSlice, TransactionId,
    },
    prelude::{Attribute, MessageWrite},
};

/// Length of a request in bytes: a header.
pub const REQUEST_LEN: usize = MessageHeader::LENGTH;
/// Longest answer that is read, in bytes: one packet on every link of IPv6 (RFC 8200 §5).
pub const MAX_ANSWER: usize = 1280;

/// Attributes that change nothing about the address, although a client must understand them: all those of RFC 8489
/// §18.3, and `SOURCE-ADDRESS` and `CHANGED-ADDRESS` (RFC 3489 §11.2), which old servers add.
const UNDERSTOOD: [u16; 13] = [
    0x0001, 0x0004, 0x0005, 0x0006, 0x0008, 0x0009, 0x000a, 0x0014, 0x0015, 0x001c, 0x001d, 0x001e,
    0x0020,
];

/// Returns whether a datagram is framed as STUN: cheap, and false for every message of WireGuard.
///
/// A handshake initiation begins with `01 00 00 00`, so as STUN it would end after 20 bytes; a success response begins
/// with `01 01`.
#[must_use]
pub fn looks_like_stun(bytes: &[u8]) -> bool {
    let Some((header, body)) = bytes.split_first_chunk::<REQUEST_LEN>() else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let has_leading_zeros = header[0] & 0xc0 == 0;
    let has_cookie = header[4..8] == MAGIC_COOKIE.to_be_bytes();
    has_leading_zeros && has_cookie && length % 4 == 0 && length == body.len()
}

/// Returns a binding request without attributes.
pub(crate) fn request(id: TransactionId) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    let kind = MessageType::from_class_method(MessageClass::Request, BINDING);
    Message::builder(kind, id, MessageWriteMutSlice::new(&mut bytes)).finish();
    bytes
}

/// Turns 96 random bits into an identifier.
pub(crate) fn transaction(random: [u8; 12]) -> TransactionId {
    let bits = random
        .iter()
        .fold(0, |bits, it| bits << 8 | u128::from(*it));
    TransactionId::from(bits)
}

/// Returns the transaction of a response to a binding request, of success or of error.
pub(crate) fn answered(bytes: &[u8]) -> Option<TransactionId> {
    if bytes.len() > MAX_ANSWER || !looks_like_stun(bytes) {
        return None;
    }
    let header = MessageHeader::from_bytes(bytes).ok()?;
    let kind = header.get_type();
    (kind.is_response() && kind.has_method(BINDING)).then(|| header.transaction_id())
}

/// Returns the address in an answer; `None` if it reports an error, is malformed or not understood, or names none that
/// can be sent to.
///
/// The library logs what is malformed, so check first that the datagram is no stranger's.
pub(crate) fn mapped_address(bytes: &[u8]) -> Option<SocketAddr> {
    let message = Message::from_bytes(bytes).ok()?;
    let mut kinds = message.iter_attributes().map(|(_, it)| it.get_type());
    if !message.has_class(MessageClass::Success) || !kinds.all(is_understood) {
        return None;
    }
    let mapped = message.attribute::<XorMappedAddress>().ok()?;
    let mapped = canonical(mapped.addr(message.transaction_id()));
    is_usable(mapped).then_some(mapped)
}

fn is_understood(kind: AttributeType) -> bool {
    !kind.comprehension_required() || UNDERSTOOD.contains(&kind.value())
}

/// Returns whether the address can be one machine's.
pub(crate) fn is_usable(address: SocketAddr) -> bool {
    let ip = address.ip();
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

/// Returns the address as IPv4 if it is one, and without a scope.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
