//! TUN offload.

/// The offload that the kernel granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// A virtio header stands in front of each packet.
    pub vnet_hdr: bool,
    /// The kernel exchanges super-packets of TCP.
    pub tcp: bool,
    /// The kernel exchanges super-packets of UDP (Linux 6.2 and later).
    pub udp: bool,
}
