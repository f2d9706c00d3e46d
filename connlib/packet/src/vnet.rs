//! `struct virtio_net_hdr` (linux/virtio_net.h): the 10 bytes before each packet that is read from or
//! written to a TUN with `IFF_VNET_HDR`, in host byte order. The device is set to both.

/// Bytes of the header.
pub const VNET_LEN: usize = 10;

/// The transport checksum is incomplete: its field holds the sum of the pseudo-header.
pub const NEEDS_CSUM: u8 = 1;
/// Somebody has verified the transport checksum.
pub const DATA_VALID: u8 = 2;

/// One packet.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4, in several segments.
pub const GSO_TCPV4: u8 = 1;
/// TCP over IPv6, in several segments.
pub const GSO_TCPV6: u8 = 4;
/// Several UDP datagrams of one length; the last may be shorter.
pub const GSO_UDP_L4: u8 = 5;
/// A flag in the type field: the first segment may carry CWR.
pub const GSO_ECN: u8 = 0x80;

/// The fields of the header, as the virtio specification names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// Kind of segmentation: [`GSO_TCPV4`], [`GSO_TCPV6`], [`GSO_UDP_L4`], or 0 if it is not.
    pub gso_type: u8,
    /// Bytes of all headers, which every segment repeats.
    pub hdr_len: u16,
    /// Bytes of payload in each segment.
    pub gso_size: u16,
    /// Where checksumming starts, in bytes from the packet's start.
    pub csum_start: u16,
    /// Where the checksum is, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: [u8; VNET_LEN]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; VNET_LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Returns whether the transport checksum need not, or cannot, be verified.
    #[must_use]
    pub(crate) fn is_checked(self) -> bool {
        self.flags & (NEEDS_CSUM | DATA_VALID) != 0
    }

    /// The payload of each datagram in bytes, if this is several of them.
    #[must_use]
    pub fn datagram_len(self) -> Option<usize> {
        let is_several = self.gso_type & !GSO_ECN == GSO_UDP_L4 && self.gso_size > 0;
        is_several.then_some(self.gso_size.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let header = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV6 | GSO_ECN,
            hdr_len: 72,
            gso_size: 1368,
            csum_start: 40,
            csum_offset: 16,
        };
        assert_eq!(VnetHeader::parse(header.to_bytes()), header);
    }
}
