//! Families, NATs, and the weather between clients.

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

/// Percent of datagrams that are lost and doubled, and the longest further delay in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delay: u64,
}

/// Numbers that look random (xorshift).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A client's address over IPv6.
pub(crate) fn v6_of(client: usize) -> SocketAddr {
    let network = client as u16 + 1;
    ([0x2001, 0xdb8, network, 0, 0, 0, 0, 2], 51820).into()
}
