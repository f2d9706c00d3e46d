//! The layout of WireGuard's messages, in bytes (WireGuard paper §5.4).

use convoy_paths::MAX_MESSAGE;

/// Length of an initiation, the longest handshake message.
pub(crate) const INITIATION: usize = 148;
/// Length of a response.
pub(crate) const RESPONSE: usize = 92;
/// Length of a cookie reply.
pub(crate) const COOKIE_REPLY: usize = 64;
/// Length of MAC1 and of MAC2, which end an initiation and a response.
pub(crate) const MAC: usize = 16;
/// Length of a data message's header, before the ciphertext.
pub(crate) const DATA_HEADER: usize = 16;
/// Bytes that encryption adds to a packet: header and AEAD tag.
pub const DATA_OVERHEAD: usize = 32;

/// Longest message to a peer that is met through a hub: one about paths, padded and sealed.
pub(crate) const LONGEST_BY_HUB: usize = MAX_MESSAGE.next_multiple_of(16) + DATA_OVERHEAD;
/// Longest datagram to a hub with such a message inside, behind headers of IPv6 and UDP.
pub(crate) const LONGEST_TO_HUB: usize = (LONGEST_BY_HUB + 48).next_multiple_of(16) + DATA_OVERHEAD;

/// The index at `offset` in a message; 0 if the message is too short.
pub(crate) fn index_at(message: &[u8], offset: usize) -> u32 {
    match message.get(offset..offset + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// The counter of a data message; the maximum if the message is too short.
pub(crate) fn counter_of(message: &[u8]) -> u64 {
    let bytes = message.get(8..).and_then(<[u8]>::first_chunk);
    bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
