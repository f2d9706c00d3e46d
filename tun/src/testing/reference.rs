//! A reference segmentation that shares no code with the one under test. It follows RFC 791, 8200, 768,
//! 9293 and 1071, `struct virtio_net_hdr`, and Linux's `tcp_gso_segment` and `__udp_gso_segment`.

use super::naive_sum;

/// The packets in a read, which is a virtio header and a packet or super-packet; `None` if malformed.
pub(crate) fn packets_of(raw: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (vnet, packet) = raw.split_at_checked(10)?;
    let field = |at: usize| usize::from(u16::from_ne_bytes([vnet[at], vnet[at + 1]]));
    let (needs_sum, kind) = (vnet[0] & 1 != 0, vnet[1] & 0x7f);
    let (segment_len, start, offset) = (field(4), field(6), field(8));
    if packet.is_empty() || packet.len() > 65_535 {
        return None;
    }
    if kind != 0 {
        let is_tcp = match (kind, packet[0] >> 4) {
            (1, 4) | (4, 6) => true,
            (5, 4 | 6) => false,
            _ => return None,
        };
        let layout = Layout::of(packet)?;
        let fits = segment_len > 0 && layout.is_tcp == is_tcp;
        if fits && vnet[0] & 3 == 2 {
            // Verified, so the field holds no seed.
            let mut packet = packet.to_vec();
            let seed = naive_sum(&pseudo(&packet, layout));
            put(&mut packet, layout.checksum(), usize::from(seed));
            return Some(segments(&packet, layout, segment_len));
        }
        let has_seed =
            needs_sum && layout.transport == start && layout.checksum() == start + offset;
        return (fits && has_seed).then(|| segments(packet, layout, segment_len));
    }
    let mut packet = packet.to_vec();
    if needs_sum {
        let at = start + offset;
        if at + 2 > packet.len() {
            return None;
        }
        let checksum = match !naive_sum(&packet[start..]) {
            0 => 0xffff,
            other => other,
        };
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(vec![packet])
}

/// Returns whether lengths and checksums of a TCP or UDP packet are right; `None` for any other packet.
pub(crate) fn is_valid(packet: &[u8]) -> Option<bool> {
    let layout = Layout::of(packet)?;
    let is_header_right = !layout.is_v4 || naive_sum(&packet[..layout.transport]) == 0xffff;
    let transport = &packet[layout.transport..];
    let is_udp_len_right = layout.is_tcp || word(transport, 4) == transport.len();
    let sum = naive_sum(&[&pseudo(packet, layout)[..], transport].concat());
    Some(is_header_right && is_udp_len_right && sum == 0xffff)
}

/// The position of the checksum field, and the sum of the pseudo-header, which the kernel leaves there.
pub(crate) fn seed(packet: &[u8]) -> Option<(usize, [u8; 2])> {
    let layout = Layout::of(packet)?;
    let sum = naive_sum(&pseudo(packet, layout));
    Some((layout.checksum(), sum.to_be_bytes()))
}

/// The packet in a form that can be compared. If its checksums are right, they get their canonical form,
/// and a meaningless identification (RFC 6864 §4.1) is cleared.
pub(crate) fn canonical(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let Some(layout) = Layout::of(&packet) else {
        return packet;
    };
    let has_checksum = layout.is_tcp || word(&packet, layout.checksum()) != 0;
    if !has_checksum || is_valid(&packet) != Some(true) {
        return packet;
    }
    if layout.is_v4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
    }
    complete(&mut packet, layout);
    packet
}

/// The packet with its checksums corrected if it is one of TCP or UDP.
pub(crate) fn with_checksums(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if let Some(layout) = Layout::of(&packet) {
        complete(&mut packet, layout);
    }
    packet
}

/// The layout of a whole TCP or UDP packet, in bytes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    is_v4: bool,
    is_tcp: bool,
    transport: usize,
    payload: usize,
}

impl Layout {
    fn of(packet: &[u8]) -> Option<Self> {
        let is_v4 = match packet.first()? >> 4 {
            4 => true,
            6 => false,
            _ => return None,
        };
        let (transport, protocol) = if is_v4 {
            v4_transport(packet)?
        } else {
            v6_transport(packet)?
        };
        let header = packet.get(transport..)?;
        let (is_tcp, len) = match protocol {
            6 if header.len() >= 20 => (true, usize::from(header[12] >> 4) * 4),
            17 if header.len() >= 8 => (false, 8),
            _ => return None,
        };
        let is_tcp_short = is_tcp && len < 20;
        (!is_tcp_short && len <= header.len()).then_some(Self {
            is_v4,
            is_tcp,
            transport,
            payload: transport + len,
        })
    }

    fn checksum(self) -> usize {
        self.transport + if self.is_tcp { 16 } else { 6 }
    }
}

fn v4_transport(packet: &[u8]) -> Option<(usize, u8)> {
    if packet.len() < 20 {
        return None;
    }
    let header = usize::from(packet[0] & 15) * 4;
    let is_fragment = word(packet, 6) & 0x3fff != 0;
    let is_whole = word(packet, 2) == packet.len();
    let fits = (20..=packet.len()).contains(&header);
    (fits && is_whole && !is_fragment).then_some((header, packet[9]))
}

/// Follows hop-by-hop and destination options, and routing headers.
fn v6_transport(packet: &[u8]) -> Option<(usize, u8)> {
    if packet.len() < 40 || word(packet, 4) + 40 != packet.len() {
        return None;
    }
    let (mut at, mut next) = (40, packet[6]);
    while [0, 43, 60].contains(&next) {
        let &[following, units] = packet.get(at..at + 2)?.first_chunk()?;
        next = following;
        at += 8 * (1 + usize::from(units));
    }
    Some((at, next))
}

fn segments(packet: &[u8], layout: Layout, segment_len: usize) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(layout.payload);
    let count = payload.len().div_ceil(segment_len).max(1);
    let at = layout.transport;
    // A wrong seed is off by the same amount in every segment.
    let wrong = sub(
        word(packet, layout.checksum()) as u16,
        naive_sum(&pseudo(packet, layout)),
    );
    (0..count)
        .map(|index| {
            let from = index * segment_len;
            let to = (from + segment_len).min(payload.len());
            let mut segment = [header, &payload[from..to]].concat();
            let len = segment.len();
            if layout.is_v4 {
                let identification = word(packet, 4) + index;
                put(&mut segment, 2, len);
                put(&mut segment, 4, identification);
            } else {
                put(&mut segment, 4, len - 40);
            }
            if layout.is_tcp {
                let sequence = [
                    packet[at + 4],
                    packet[at + 5],
                    packet[at + 6],
                    packet[at + 7],
                ];
                let sequence = u32::from_be_bytes(sequence).wrapping_add(from as u32);
                segment[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
                if index + 1 < count {
                    segment[at + 13] &= !0x09;
                }
                if index > 0 {
                    segment[at + 13] &= !0x80;
                }
            } else {
                put(&mut segment, at + 4, len - at);
            }
            complete(&mut segment, layout);
            if ![0, 0xffff].contains(&wrong) {
                let checksum = layout.checksum();
                let right = word(&segment, checksum) as u16;
                // Of the two zeros, choose the one that completing a sum gives: for UDP never "none".
                let as_wrong = match sub(right, wrong) {
                    0xffff if layout.is_tcp => 0,
                    0 if !layout.is_tcp => 0xffff,
                    other => other,
                };
                put(&mut segment, checksum, usize::from(as_wrong));
            }
            segment
        })
        .collect()
}

/// Writes the checksums.
fn complete(packet: &mut [u8], layout: Layout) {
    if layout.is_v4 {
        put(packet, 10, 0);
        let sum = naive_sum(&packet[..layout.transport]);
        put(packet, 10, usize::from(!sum));
    }
    put(packet, layout.checksum(), 0);
    let covered = [&pseudo(packet, layout)[..], &packet[layout.transport..]].concat();
    let checksum = match !naive_sum(&covered) {
        0 if !layout.is_tcp => 0xffff,
        other => other,
    };
    put(packet, layout.checksum(), usize::from(checksum));
}

fn pseudo(packet: &[u8], layout: Layout) -> Vec<u8> {
    let addresses = if layout.is_v4 { 12..20 } else { 8..40 };
    let len = packet.len() - layout.transport;
    let protocol = if layout.is_tcp { 6 } else { 17 };
    let tail = [0, protocol, (len >> 8) as u8, len as u8];
    [&packet[addresses], &tail].concat()
}

/// Subtracts in ones' complement.
fn sub(a: u16, b: u16) -> u16 {
    let sum = u32::from(a) + u32::from(!b);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1])
}

fn put(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}
