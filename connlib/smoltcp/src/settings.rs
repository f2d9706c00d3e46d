//! Settings of a stack.

use std::{net::IpAddr, sync::Arc};

use convoy_network::{NameServers, peers::Peers};

/// Connections that exist at once, in all states but TIME-WAIT.
pub const MAX_FLOWS: usize = 8192;

/// The network that a stack is in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The stack's addresses with the lengths of their networks' prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The longest packet, except for super-packets: 1,280 to 65,535 bytes.
    pub mtu: u16,
    /// Name servers, which are asked through the tunnel.
    pub names: NameServers,
    /// Addresses by peer, so that no peer uses up what all share.
    pub peers: Arc<Peers>,
}
