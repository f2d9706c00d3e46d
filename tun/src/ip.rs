//! The fields of IPv4, IPv6, TCP and UDP headers that splitting and coalescing touch, as offsets.
//!
//! IPv4: RFC 791. IPv6: RFC 8200. TCP: RFC 9293. UDP: RFC 768.

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The longest packet that an IPv4 total length can say.
pub(crate) const MAX_PACKET: usize = 65_535;

pub(crate) mod v4 {
    pub(crate) const HEADER_LEN: usize = 20;
    pub(crate) const TOTAL_LEN: usize = 2;
    pub(crate) const IDENTIFICATION: usize = 4;
    pub(crate) const FRAGMENT: usize = 6;
    pub(crate) const PROTOCOL: usize = 9;
    pub(crate) const CHECKSUM: usize = 10;
    pub(crate) const ADDRESSES: std::ops::Range<usize> = 12..20;
    pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
    /// More fragments, or an offset.
    pub(crate) const IS_FRAGMENT: u16 = 0x3fff;
}

pub(crate) mod v6 {
    pub(crate) const HEADER_LEN: usize = 40;
    pub(crate) const PAYLOAD_LEN: usize = 4;
    pub(crate) const NEXT_HEADER: usize = 6;
    pub(crate) const ADDRESSES: std::ops::Range<usize> = 8..40;
    /// Hop-by-hop options, routing and destination options: the next header's number and the length
    /// in units of 8 bytes, without the first, come first in each.
    pub(crate) const EXTENSIONS: [u8; 3] = [0, 43, 60];
}

pub(crate) mod tcp {
    pub(crate) const HEADER_LEN: usize = 20;
    pub(crate) const SEQUENCE: usize = 4;
    pub(crate) const DATA_OFFSET: usize = 12;
    pub(crate) const FLAGS: usize = 13;
    pub(crate) const CHECKSUM: usize = 16;
    pub(crate) const FIN: u8 = 0x01;
    pub(crate) const PSH: u8 = 0x08;
    pub(crate) const ACK: u8 = 0x10;
    pub(crate) const CWR: u8 = 0x80;
}

pub(crate) mod udp {
    pub(crate) const HEADER_LEN: usize = 8;
    pub(crate) const LENGTH: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
}

/// The big-endian 16-bit word at `at`.
#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit word at `at`.
#[inline]
pub(crate) fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn set_long(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
