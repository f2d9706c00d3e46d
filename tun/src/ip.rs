//! The offsets of the header fields that cutting and coalescing use, in bytes.
//!
//! IPv4: RFC 791. IPv6: RFC 8200. TCP: RFC 9293. UDP: RFC 768.

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The longest packet that the IPv4 total length can express, in bytes.
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
    /// "More fragments" and the fragment offset: nonzero in a fragment.
    pub(crate) const IS_FRAGMENT: u16 = 0x3fff;
}

pub(crate) mod v6 {
    pub(crate) const HEADER_LEN: usize = 40;
    pub(crate) const PAYLOAD_LEN: usize = 4;
    pub(crate) const NEXT_HEADER: usize = 6;
    pub(crate) const ADDRESSES: std::ops::Range<usize> = 8..40;
    /// Hop-by-hop options, routing header and destination options. Each begins with the next header's
    /// number and its own length, in units of 8 bytes without the first.
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
