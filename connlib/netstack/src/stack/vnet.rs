//! `struct virtio_net_hdr` (linux/virtio_net.h): the 10 bytes before each packet, in host byte order.

/// Bytes of the header.
pub(crate) const VNET_LEN: usize = 10;

/// The transport checksum is incomplete: its field holds the sum of the pseudo-header.
pub(crate) const NEEDS_CSUM: u8 = 1;
/// Somebody has verified the transport checksum.
pub(crate) const DATA_VALID: u8 = 2;

pub(crate) const GSO_TCPV4: u8 = 1;
pub(crate) const GSO_TCPV6: u8 = 4;
pub(crate) const GSO_UDP_L4: u8 = 5;
/// A flag in the type field: the first segment may carry CWR.
const GSO_ECN: u8 = 0x80;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    pub(crate) hdr_len: u16,
    pub(crate) gso_size: u16,
    pub(crate) csum_start: u16,
    pub(crate) csum_offset: u16,
}

impl VnetHeader {
    pub(crate) fn parse(bytes: [u8; VNET_LEN]) -> Self {
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

    pub(crate) fn to_bytes(self) -> [u8; VNET_LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// Whether the transport checksum need not, or cannot, be verified.
    pub(crate) fn is_checked(self) -> bool {
        self.flags & (NEEDS_CSUM | DATA_VALID) != 0
    }

    /// The payload of each datagram, if this is several of them.
    pub(crate) fn datagram_len(self) -> Option<usize> {
        let is_several = self.gso_type & !GSO_ECN == GSO_UDP_L4 && self.gso_size > 0;
        is_several.then_some(self.gso_size.into())
    }
}
