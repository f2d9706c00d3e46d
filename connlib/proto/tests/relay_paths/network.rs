//! Families and NATs of clients.

use std::net::SocketAddr;

/// The hub's address over IPv6.
pub(crate) const HUB_V6: ([u16; 8], u16) = ([0x2001, 0xdb8, 9, 0, 0, 0, 0, 9], 51820);

/// How a client's NAT maps; all admit only answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nat {
    /// One port for all destinations.
    Home,
    /// A port for each destination.
    Hard,
}

/// The families of a client's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    V4,
    V6,
    Both,
}

impl Stack {
    pub(crate) fn has(self, to: SocketAddr) -> bool {
        match self {
            Self::V4 => to.is_ipv4(),
            Self::V6 => to.is_ipv6(),
            Self::Both => true,
        }
    }
}

/// A client's address over IPv6.
pub(crate) fn v6_of(client: usize) -> SocketAddr {
    let network = client as u16 + 1;
    ([0x2001, 0xdb8, network, 0, 0, 0, 0, 2], 51820).into()
}
