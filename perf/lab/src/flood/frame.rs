//! Ethernet, IPv4 and UDP headers of spoofed datagrams.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::packet_socket::VNET_HEADER;

const ETHERNET: usize = VNET_HEADER;
const IP: usize = ETHERNET + 14;
const UDP: usize = IP + 20;
/// Bytes in front of the payload.
pub(super) const HEADER: usize = UDP + 8;

/// The first address of [`super::SOURCES`].
const FIRST_SOURCE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Ports that nothing else uses.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 10_007;

/// What all headers of a flood have in common.
#[derive(Debug)]
pub(super) struct Template([u8; HEADER]);

impl Template {
    pub(super) fn new(own: [u8; 6], neighbour: [u8; 6], target: SocketAddrV4) -> Self {
        let mut header = [0; HEADER];
        // linux/virtio_net.h: the checksum is to be completed, from the UDP header on, at its place.
        header[0] = 1;
        header[6..8].copy_from_slice(&((UDP - ETHERNET) as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&6u16.to_ne_bytes());
        header[ETHERNET..][..6].copy_from_slice(&neighbour);
        header[ETHERNET + 6..][..6].copy_from_slice(&own);
        header[ETHERNET + 12..][..2].copy_from_slice(&[0x08, 0x00]);
        header[IP] = 0x45;
        header[IP + 8..][..2].copy_from_slice(&[64, 17]);
        header[IP + 16..][..4].copy_from_slice(&target.ip().octets());
        header[UDP + 2..][..2].copy_from_slice(&target.port().to_be_bytes());
        Self(header)
    }

    /// The headers of frame `number`, which carries so many bytes, in segments of so many.
    pub(super) fn header(&self, number: u64, payload: usize, segment: Option<u16>) -> [u8; HEADER] {
        /// `VIRTIO_NET_HDR_GSO_UDP_L4`.
        const GSO_UDP_L4: u8 = 5;
        let mut header = self.0;
        if let Some(segment) = segment.filter(|segment| payload > usize::from(*segment)) {
            header[1] = GSO_UDP_L4;
            header[2..4].copy_from_slice(&((HEADER - ETHERNET) as u16).to_ne_bytes());
            header[4..6].copy_from_slice(&segment.to_ne_bytes());
        }
        let source = Ipv4Addr::from(FIRST_SOURCE + (number % 0x1_0000) as u32);
        let port = FIRST_PORT + (number % PORTS) as u16;
        let udp_len = (8 + payload) as u16;
        header[IP + 2..][..2].copy_from_slice(&(20 + udp_len).to_be_bytes());
        header[IP + 4..][..2].copy_from_slice(&(number as u16).to_be_bytes());
        header[IP + 12..][..4].copy_from_slice(&source.octets());
        let checksum = !folded(sum(&header[IP..UDP]));
        header[IP + 10..][..2].copy_from_slice(&checksum.to_be_bytes());
        header[UDP..][..2].copy_from_slice(&port.to_be_bytes());
        header[UDP + 4..][..2].copy_from_slice(&udp_len.to_be_bytes());
        // Of the pseudo header (RFC 768): the rest is left to hardware that never sees it.
        let pseudo = sum(&header[IP + 12..UDP]) + 17 + u32::from(udp_len);
        header[UDP + 6..][..2].copy_from_slice(&folded(pseudo).to_be_bytes());
        header
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|w| u16::from_be_bytes([w[0], w[1]]));
    words.map(u32::from).sum()
}

fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
