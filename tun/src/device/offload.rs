//! TUN offload: asked for, and granted.

/// Whether super-packets are exchanged with the kernel (TUN offload).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadRequest {
    /// Uses the offload that the kernel has.
    #[default]
    Auto,
    /// Requires super-packets of TCP; opening fails where the kernel refuses them.
    On,
    /// Uses none: each packet is read and written by itself.
    Off,
}

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
