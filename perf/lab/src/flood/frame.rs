//! Ethernet, IPv4 and UDP headers of spoofed datagrams.

use std::net::{Ipv4Addr, SocketAddrV4};

use etherparse::{IpNumber, Ipv4Header, UdpHeader, checksum::Sum16BitWords};

use crate::packet_socket::VNET_HEADER;

const ETHERNET: usize = VNET_HEADER;
const IP: usize = ETHERNET + 14;
const UDP: usize = IP + Ipv4Header::MIN_LEN;
/// Bytes in front of the payload.
const HEADER: usize = UDP + UdpHeader::LEN;

/// The first address of [`super::SOURCES`].
const FIRST_SOURCE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Ports that nothing else uses.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 10_007;

/// The part that all headers of a flood have in common.
#[derive(Debug)]
pub(super) struct Template {
    header: [u8; HEADER],
    target: SocketAddrV4,
}

impl Template {
    pub(super) fn new(own: [u8; 6], neighbour: [u8; 6], target: SocketAddrV4) -> Self {
        let mut header = [0; HEADER];
        // linux/virtio_net.h: complete the checksum from the UDP header on, at offset 6.
        header[0] = 1;
        header[6..8].copy_from_slice(&((UDP - ETHERNET) as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&6u16.to_ne_bytes());
        let ethernet = [&neighbour[..], &own, &[0x08, 0x00]].concat();
        header[ETHERNET..IP].copy_from_slice(&ethernet);
        Self { header, target }
    }

    /// The headers of frame `number` around `payload` bytes, in segments of `segment` bytes.
    pub(super) fn header(&self, number: u64, payload: usize, segment: Option<u16>) -> [u8; HEADER] {
        /// `VIRTIO_NET_HDR_GSO_UDP_L4`.
        const GSO_UDP_L4: u8 = 5;
        let mut header = self.header;
        if let Some(segment) = segment.filter(|segment| payload > usize::from(*segment)) {
            header[1] = GSO_UDP_L4;
            header[2..4].copy_from_slice(&((HEADER - ETHERNET) as u16).to_ne_bytes());
            header[4..6].copy_from_slice(&segment.to_ne_bytes());
        }
        let source = Ipv4Addr::from(FIRST_SOURCE + (number % 0x1_0000) as u32).octets();
        let target = self.target.ip().octets();
        let length = (UdpHeader::LEN + payload) as u16;
        let mut ip = Ipv4Header {
            total_len: Ipv4Header::MIN_LEN as u16 + length,
            identification: number as u16,
            dont_fragment: false,
            time_to_live: 64,
            protocol: IpNumber::UDP,
            source,
            destination: target,
            ..Ipv4Header::default()
        };
        ip.header_checksum = ip.calc_header_checksum();
        // Of the pseudo header (RFC 768): the rest is left to hardware that never sees it.
        let pseudo = Sum16BitWords::new()
            .add_4bytes(source)
            .add_4bytes(target)
            .add_2bytes([0, IpNumber::UDP.0])
            .add_2bytes(length.to_be_bytes());
        let udp = UdpHeader {
            source_port: FIRST_PORT + (number % PORTS) as u16,
            destination_port: self.target.port(),
            length,
            // Summed in native order.
            checksum: u16::from_be(!pseudo.ones_complement()),
        };
        header[IP..UDP].copy_from_slice(&ip.to_bytes());
        header[UDP..].copy_from_slice(&udp.to_bytes());
        header
    }
}
