//! TCP segments outside of smoltcp.

use std::net::SocketAddr;

use super::packet::{TCP, transport_sum, write_ip_header};

/// Bytes of a header without options.
pub const TCP_HEADER: usize = 20;

/// The two ends of a connection, as this stack sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The end on this side.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// The fields of a TCP segment that matter outside of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The port that it comes from.
    pub source_port: u16,
    /// The port that it goes to.
    pub destination_port: u16,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the next byte that is expected from the other end.
    pub acknowledged: u32,
    /// [`FIN`] and the like.
    pub flags: u8,
    /// As it is written, without its scale.
    pub window: u16,
    /// Bytes of the header, with options.
    pub header_len: usize,
    /// Bytes of the payload; of a super-packet, of all its segments.
    pub payload_len: usize,
}

/// Nothing follows.
pub const FIN: u8 = 1;
/// Begins a connection.
pub const SYN: u8 = 2;
/// Ends a connection at once.
pub const RST: u8 = 4;
/// Is to be handed to the application.
pub const PSH: u8 = 8;
/// The acknowledgement number counts.
pub const ACK: u8 = 16;

impl Segment {
    /// Reads the header of a segment; `None` if it has none.
    pub fn parse(segment: &[u8]) -> Option<Self> {
        let header: &[u8; TCP_HEADER] = segment.first_chunk()?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < TCP_HEADER || header_len > segment.len() {
            return None;
        }
        Some(Self {
            source_port: half(0),
            destination_port: half(2),
            sequence: word(4),
            acknowledged: word(8),
            flags: header[13],
            window: half(14),
            header_len,
            payload_len: segment.len() - header_len,
        })
    }

    /// Returns whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The sequence number behind it.
    pub fn end(&self) -> u32 {
        let flags = u32::from(self.has(SYN)) + u32::from(self.has(FIN));
        self.sequence
            .wrapping_add(self.payload_len as u32)
            .wrapping_add(flags)
    }
}

/// The options of a segment that matter to a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The longest segment that the other end wants.
    pub mss: Option<u16>,
    /// By how many bits its windows are to be shifted.
    pub scale: Option<u8>,
    blocks: [(u32, u32); 4],
    count: usize,
}

impl Options {
    /// Reads the options of a segment up to the first one that is malformed.
    pub fn parse(segment: &[u8], header_len: usize) -> Self {
        let mut it = Self::default();
        let mut rest = segment.get(TCP_HEADER..header_len).unwrap_or_default();
        loop {
            rest = match rest {
                [1, rest @ ..] => rest,
                [2..=255, length, ..] if (2..=rest.len()).contains(&usize::from(*length)) => {
                    let (option, behind) = rest.split_at((*length).into());
                    it.add(option);
                    behind
                }
                _ => return it,
            };
        }
    }

    /// Ranges that have arrived beyond what is acknowledged.
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks[..self.count]
    }

    fn add(&mut self, option: &[u8]) {
        match option {
            [2, 4, a, b] => self.mss = Some(u16::from_be_bytes([*a, *b])),
            // More is an error, and taken for the most (RFC 7323 §2.3).
            [3, 3, scale] => self.scale = Some((*scale).min(14)),
            [5, _, ranges @ ..] => {
                let (ranges, _) = ranges.as_chunks::<8>();
                for (block, range) in self.blocks.iter_mut().zip(ranges) {
                    let [a, b, c, d, e, f, g, h] = *range;
                    let ends = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
                    *block = (ends[0], ends[1]);
                }
                self.count = ranges.len().min(self.blocks.len());
            }
            _ => {}
        }
    }
}

/// A segment without options that is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain<'a> {
    /// [`FIN`] and the like.
    pub flags: u8,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the next byte that is expected from the other end.
    pub acknowledged: u32,
    /// As it is written, without its scale; zero stops an end that has more to send.
    pub window: u16,
    /// The bytes behind the header.
    pub payload: &'a [u8],
}

/// Writes a packet with a TCP segment; returns its length.
pub fn write_segment(into: &mut [u8], ends: Tuple, plain: Plain<'_>) -> usize {
    let (source, destination) = (ends.local.ip(), ends.remote.ip());
    let length = TCP_HEADER + plain.payload.len();
    let at = write_ip_header(into, source, destination, TCP, length);
    let segment = &mut into[at..at + length];
    let (header, payload) = segment.split_at_mut(TCP_HEADER);
    header.fill(0);
    header[0..2].copy_from_slice(&ends.local.port().to_be_bytes());
    header[2..4].copy_from_slice(&ends.remote.port().to_be_bytes());
    header[4..8].copy_from_slice(&plain.sequence.to_be_bytes());
    header[8..12].copy_from_slice(&plain.acknowledged.to_be_bytes());
    header[12] = (TCP_HEADER as u8 / 4) << 4;
    header[13] = plain.flags;
    header[14..16].copy_from_slice(&plain.window.to_be_bytes());
    payload.copy_from_slice(plain.payload);
    let sum = !transport_sum(source, destination, TCP, segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    at + length
}
