//! Options of the data path.

use std::sync::Arc;

use convoy_aead::Aead;
use convoy_gso::udp::{OwnPrivileges, Privileged};
pub use convoy_types::Switch;

/// Options of the data path.
#[derive(Clone, Debug)]
pub struct Options {
    /// UDP segmentation offload on send.
    pub gso: Switch,
    /// UDP receive offload.
    pub udp_gro: Switch,
    /// The implementation that seals and opens packets.
    pub aead: Aead,
    /// Packets at which a TUN batch is closed, and most packets of it handled in one step: 1..=50.
    pub batch: usize,
    /// Whether TCP handshakes are changed, in both directions, so that neither end announces a longer segment
    /// than the interface's MTU carries.
    pub clamp_mss: bool,
    /// Whether the link is up from the start, without a call of
    /// [`Tunnel::set_link`](crate::Tunnel::set_link).
    pub is_up: bool,
    /// Whether packets from the TUN wait for the first [`Tunnel::apply`](crate::Tunnel::apply): without peers, they
    /// would be answered with ICMP errors, which end connections that are being made.
    pub awaits_configuration: bool,
    /// Whether the tunnel goes through another, in this process: nothing leaves before
    /// [`Tunnel::set_outer`](crate::Tunnel::set_outer).
    pub has_outer: bool,
    /// Sets what needs privileges, for sockets.
    pub privileged: Arc<dyn Privileged>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gso: Switch::Auto,
            udp_gro: Switch::Auto,
            aead: Aead::ring(),
            batch: convoy_tun::MAX_BATCH_PACKETS,
            clamp_mss: false,
            is_up: true,
            awaits_configuration: false,
            has_outer: false,
            privileged: Arc::new(OwnPrivileges),
        }
    }
}
