//! TCP segments as etherparse makes them.

use etherparse::{IpNumber, PacketBuilder, TcpHeader};

/// Options of TCP; the last is TCP-AO's (RFC 5925).
pub(super) const END: u8 = 0;
pub(super) const NOP: u8 = 1;
pub(super) const MSS: u8 = 2;
pub(super) const COOKIE: u8 = 34;
pub(super) const AUTHENTICATION: u8 = 29;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const IPSEC_AUTHENTICATION: u8 = 51;
pub(super) const DESTINATION: u8 = 60;

/// A TCP segment in its packet.
pub(super) struct Segment {
    pub(super) is_v4: bool,
    pub(super) flags: u8,
    /// Words of options in the IPv4 header.
    pub(super) network_options: usize,
    /// The extension headers of IPv6.
    pub(super) extensions: Vec<u8>,
    /// Padded to whole words.
    pub(super) options: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Segment {
    pub(super) fn announcing(mss: u16) -> Self {
        Self::with(announcement(mss).to_vec())
    }

    /// An IPv4 packet with SYN and these options.
    pub(super) fn with(options: Vec<u8>) -> Self {
        Self {
            is_v4: true,
            flags: SYN,
            network_options: 0,
            extensions: Vec::new(),
            options,
            payload: Vec::new(),
        }
    }

    pub(super) fn checksum_at(&self) -> usize {
        let network = match self.is_v4 {
            true => 20 + 4 * self.network_options,
            false => 40 + extension_lens(&self.extensions).sum::<usize>(),
        };
        network + 16
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut header = TcpHeader::new(4242, 5201, 7, 65_000);
        let flag = |bit| self.flags & bit != 0;
        (header.fin, header.syn, header.rst) = (flag(FIN), flag(SYN), flag(RST));
        (header.psh, header.ack, header.urg) = (flag(8), flag(ACK), flag(32));
        (header.ece, header.cwr) = (flag(64), flag(128));
        let words = self.options.len().next_multiple_of(4);
        let mut options = self.options.clone();
        options.resize(words, END);
        header.set_options_raw(&options).unwrap();
        let mut packet = Vec::new();
        let network = match self.is_v4 {
            true => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            false => PacketBuilder::ipv6([0x20; 16], [0x30; 16], 64),
        };
        let written = network.tcp_header(header).write(&mut packet, &self.payload);
        written.unwrap();
        match self.is_v4 {
            true => self.add_network_options(packet),
            false => self.add_extensions(packet),
        }
    }

    fn add_network_options(&self, mut packet: Vec<u8>) -> Vec<u8> {
        packet[0] += self.network_options as u8;
        packet.splice(20..20, vec![NOP; 4 * self.network_options]);
        let len = packet.len();
        claiming(packet, len)
    }

    /// They do not enter the TCP checksum.
    fn add_extensions(&self, mut packet: Vec<u8>) -> Vec<u8> {
        let kinds = self.extensions.iter().copied();
        let mut next = kinds.clone().chain([IpNumber::TCP.0]);
        packet[6] = next.next().unwrap();
        let lens = extension_lens(&self.extensions);
        let headers = next.zip(lens).flat_map(|(next, len)| {
            let mut header = vec![0; len];
            (header[0], header[1]) = (next, (len / 8 - 1) as u8);
            header
        });
        packet.splice(40..40, headers.collect::<Vec<_>>());
        let len = packet.len();
        claiming(packet, len)
    }
}

fn extension_lens(extensions: &[u8]) -> impl Iterator<Item = usize> {
    (0..extensions.len()).map(|n| 8 * (1 + n % 3))
}

pub(super) fn announcement(mss: u16) -> [u8; 4] {
    let [high, low] = mss.to_be_bytes();
    [MSS, 4, high, low]
}

/// The packet with another length in its header.
pub(super) fn claiming(mut packet: Vec<u8>, len: usize) -> Vec<u8> {
    let (at, len) = match packet[0] >> 4 {
        4 => (2, len),
        _ => (4, len - 40),
    };
    packet[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    packet
}

/// Returns whether the TCP checksum is right; the two zeros of ones' complement are equal.
pub(super) fn is_right(packet: &[u8]) -> bool {
    let (source, destination, at) = match packet[0] >> 4 {
        4 => (
            &packet[12..16],
            &packet[16..20],
            usize::from(packet[0] & 0xf) * 4,
        ),
        _ => (&packet[8..24], &packet[24..40], tcp_of_ipv6(packet)),
    };
    let (header, payload) = TcpHeader::from_slice(&packet[at..]).unwrap();
    let right = match packet[0] >> 4 {
        4 => header.calc_checksum_ipv4_raw(
            source.try_into().unwrap(),
            destination.try_into().unwrap(),
            payload,
        ),
        _ => header.calc_checksum_ipv6_raw(
            source.try_into().unwrap(),
            destination.try_into().unwrap(),
            payload,
        ),
    };
    header.checksum % 0xffff == right.unwrap() % 0xffff
}

fn tcp_of_ipv6(packet: &[u8]) -> usize {
    let (mut next, mut at) = (packet[6], 40);
    while next != IpNumber::TCP.0 {
        next = packet[at];
        at += (usize::from(packet[at + 1]) + 1) * 8;
    }
    at
}
