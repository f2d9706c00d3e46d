//! Changes of a device, as the UAPI describes them.

use std::net::SocketAddr;

use crate::{Prefix, PresharedKey, PrivateKey, PublicKey};

/// One change to a peer's allowed IPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedIpUpdate {
    /// The prefix to add or remove; host bits do not count.
    pub network: Prefix,
    /// Whether to remove the prefix, if this peer has it, instead of adding it.
    pub remove: bool,
}

/// One `set` request of the UAPI: applied as a whole or not at all.
#[derive(Clone, Debug, Default)]
pub struct DeviceUpdate {
    /// `Some(None)` removes the private key, which stops the device.
    pub private_key: Option<Option<PrivateKey>>,
    /// The UDP port to listen on; 0 lets the kernel choose.
    pub listen_port: Option<u16>,
    /// The firewall mark of the UDP sockets; 0 clears it.
    pub fwmark: Option<u32>,
    /// Whether to remove all peers before applying `peers`.
    pub replace_peers: bool,
    /// Changes to peers, applied in order.
    pub peers: Vec<PeerUpdate>,
}

/// The changes to one peer within a [`DeviceUpdate`].
#[derive(Clone, Debug)]
pub struct PeerUpdate {
    /// The peer's identity.
    pub public_key: PublicKey,
    /// Whether to remove the peer; the other fields are then ignored.
    pub remove: bool,
    /// Whether to ignore the update if there is no such peer yet.
    pub update_only: bool,
    /// `Some(None)` removes the preshared key.
    pub preshared_key: Option<Option<PresharedKey>>,
    /// The address to send datagrams to, until an authentic one comes from another address.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between persistent keepalives; 0 turns them off.
    pub persistent_keepalive: Option<u16>,
    /// Whether to clear the allowed IPs before applying `allowed_ips`.
    pub replace_allowed_ips: bool,
    /// Changes to the allowed IPs, applied in order.
    pub allowed_ips: Vec<AllowedIpUpdate>,
}

impl PeerUpdate {
    /// An update that changes nothing, but creates the peer if it does not exist.
    #[must_use]
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            remove: false,
            update_only: false,
            preshared_key: None,
            endpoint: None,
            persistent_keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }
}
