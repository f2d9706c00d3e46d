//! Packets built in the slow, obvious way, as a reference for tests.

pub(crate) mod reference;

use proptest::prelude::*;

use convoy_packet::vnet::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VnetHeader};

use crate::ip;

/// All headers of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    pub(crate) is_v4: bool,
    pub(crate) is_tcp: bool,
    /// The last byte of the source address, which distinguishes flows.
    pub(crate) source: u8,
    pub(crate) ports: (u16, u16),
    pub(crate) traffic_class: u8,
    pub(crate) ttl: u8,
    pub(crate) identification: u16,
    /// The whole word: flags and offset.
    pub(crate) fragment: u16,
    /// IPv4 options or IPv6 extension headers, in units of 4 or 8 bytes.
    pub(crate) network_options: usize,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// In units of 4 bytes.
    pub(crate) tcp_options: usize,
    pub(crate) option_byte: u8,
}

impl Headers {
    pub(crate) fn new(is_v4: bool, is_tcp: bool) -> Self {
        Self {
            is_v4,
            is_tcp,
            source: 1,
            ports: (4242, 443),
            traffic_class: 0,
            ttl: 64,
            identification: 7,
            fragment: 0x4000,
            network_options: 0,
            sequence: 0xffff_f000,
            acknowledgement: 99,
            flags: ip::tcp::ACK,
            window: 1000,
            tcp_options: 3,
            option_byte: 1,
        }
    }

    pub(crate) fn transport(&self) -> usize {
        if self.is_v4 {
            20 + 4 * self.network_options
        } else {
            40 + 8 * self.network_options
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.transport()
            + if self.is_tcp {
                20 + 4 * self.tcp_options
            } else {
                8
            }
    }

    /// A packet with complete checksums.
    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = self.with_seed(payload);
        let at = self.transport();
        let sum = naive_sum(&packet[at..]);
        let field = self.checksum_at();
        packet[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        if !self.is_tcp && sum == 0xffff {
            packet[field..field + 2].copy_from_slice(&[0xff, 0xff]);
        }
        packet
    }

    /// A packet as the kernel hands it over before its checksum is complete.
    pub(crate) fn with_seed(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let transport_len = self.len() - self.transport() + payload.len();
        self.push_network(&mut packet, transport_len);
        self.push_transport(&mut packet, transport_len);
        packet.extend_from_slice(payload);
        let addresses = if self.is_v4 { 12..20 } else { 8..40 };
        let mut pseudo = packet[addresses].to_vec();
        pseudo.extend_from_slice(&[0, if self.is_tcp { 6 } else { 17 }]);
        pseudo.extend_from_slice(&(transport_len as u16).to_be_bytes());
        let field = self.checksum_at();
        packet[field..field + 2].copy_from_slice(&naive_sum(&pseudo).to_be_bytes());
        packet
    }

    /// A super-packet and its virtio header.
    pub(crate) fn super_packet(&self, payload: &[u8], segment_len: usize) -> (VnetHeader, Vec<u8>) {
        let header = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type: match (self.is_tcp, self.is_v4) {
                (true, true) => GSO_TCPV4,
                (true, false) => GSO_TCPV6,
                (false, _) => GSO_UDP_L4,
            },
            hdr_len: 1,
            gso_size: segment_len as u16,
            csum_start: self.transport() as u16,
            csum_offset: if self.is_tcp { 16 } else { 6 },
        };
        (header, self.with_seed(payload))
    }

    /// The packets that a super-packet of this payload is to be cut into.
    pub(crate) fn segments(&self, payload: &[u8], segment_len: usize) -> Vec<Vec<u8>> {
        let mut chunks: Vec<&[u8]> = payload.chunks(segment_len).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let last = chunks.len() - 1;
        let segment = |(index, chunk): (usize, &&[u8])| {
            let mut headers = self.clone();
            headers.identification = self.identification.wrapping_add(index as u16);
            headers.sequence = self.sequence.wrapping_add((index * segment_len) as u32);
            if index != last {
                headers.flags &= !(ip::tcp::FIN | ip::tcp::PSH);
            }
            if index != 0 {
                headers.flags &= !ip::tcp::CWR;
            }
            headers.packet(chunk)
        };
        chunks.iter().enumerate().map(segment).collect()
    }

    fn checksum_at(&self) -> usize {
        self.transport() + if self.is_tcp { 16 } else { 6 }
    }

    fn push_network(&self, packet: &mut Vec<u8>, transport_len: usize) {
        let protocol = if self.is_tcp { 6 } else { 17 };
        if self.is_v4 {
            let total = self.transport() + transport_len;
            packet.extend_from_slice(&[0x45 + self.network_options as u8, self.traffic_class]);
            packet.extend_from_slice(&(total as u16).to_be_bytes());
            packet.extend_from_slice(&self.identification.to_be_bytes());
            packet.extend_from_slice(&self.fragment.to_be_bytes());
            packet.extend_from_slice(&[self.ttl, protocol, 0, 0]);
            packet.extend_from_slice(&[10, 0, 0, self.source, 10, 1, 1, 1]);
            packet.extend(std::iter::repeat_n(1, 4 * self.network_options));
            let checksum = !naive_sum(packet);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            return;
        }
        let first = if self.network_options > 0 {
            60
        } else {
            protocol
        };
        let len = self.transport() - 40 + transport_len;
        packet.extend_from_slice(&[0x60, self.traffic_class, 1, 2]);
        packet.extend_from_slice(&(len as u16).to_be_bytes());
        packet.extend_from_slice(&[first, self.ttl]);
        packet.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, self.source]);
        packet.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
        for left in (0..self.network_options).rev() {
            packet.extend_from_slice(&[if left > 0 { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
        }
    }

    fn push_transport(&self, packet: &mut Vec<u8>, transport_len: usize) {
        packet.extend_from_slice(&self.ports.0.to_be_bytes());
        packet.extend_from_slice(&self.ports.1.to_be_bytes());
        if !self.is_tcp {
            packet.extend_from_slice(&(transport_len as u16).to_be_bytes());
            packet.extend_from_slice(&[0, 0]);
            return;
        }
        packet.extend_from_slice(&self.sequence.to_be_bytes());
        packet.extend_from_slice(&self.acknowledgement.to_be_bytes());
        packet.extend_from_slice(&[(5 + self.tcp_options as u8) << 4, self.flags]);
        packet.extend_from_slice(&self.window.to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 0]);
        packet.extend(std::iter::repeat_n(self.option_byte, 4 * self.tcp_options));
    }
}

/// Bytes without a short period, different for each seed.
pub(crate) fn payload(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + i / 256 + usize::from(seed) * 7) as u8)
        .collect()
}

/// RFC 1071, to the letter.
pub(crate) fn naive_sum(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Arbitrary headers that a super-packet may have.
pub(crate) fn any_headers() -> impl Strategy<Value = Headers> {
    (
        any::<[bool; 3]>(),
        any::<(u16, u16, u16, u16)>(),
        any::<(u32, u32)>(),
        any::<[u8; 4]>(),
        0..=10usize,
        0..=3usize,
    )
        .prop_map(
            |(
                [is_v4, is_tcp, df],
                (p0, p1, id, window),
                (sequence, acknowledgement),
                bytes,
                options,
                network,
            )| {
                let [flags, option_byte, ttl, traffic_class] = bytes;
                Headers {
                    is_v4,
                    is_tcp,
                    source: 1,
                    ports: (p0, p1),
                    traffic_class,
                    ttl,
                    identification: id,
                    fragment: if df { 0x4000 } else { 0 },
                    network_options: network,
                    sequence,
                    acknowledgement,
                    flags,
                    window,
                    tcp_options: options,
                    option_byte,
                }
            },
        )
}
