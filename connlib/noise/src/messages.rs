//! The layout of WireGuard's messages, in bytes (WireGuard paper §5.4).

/// Length of an initiation, the longest handshake message.
pub const INITIATION: usize = 148;
/// Length of a response.
pub const RESPONSE: usize = 92;
/// Length of a cookie reply.
pub const COOKIE_REPLY: usize = 64;
/// Length of MAC1 and of MAC2, which end an initiation and a response.
pub const MAC: usize = 16;
/// Length of a data message's header, before the ciphertext.
pub const DATA_HEADER: usize = 16;
/// Bytes that encryption adds to a packet: header and AEAD tag.
pub const DATA_OVERHEAD: usize = 32;

/// The index at `offset` in a message; 0 if the message is too short.
pub fn index_at(message: &[u8], offset: usize) -> u32 {
    match message.get(offset..offset + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// The counter of a data message; the maximum if the message is too short.
pub fn counter_of(message: &[u8]) -> u64 {
    let bytes = message.get(8..).and_then(<[u8]>::first_chunk);
    bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
