//! Address families, and the address of each that a server has given.

use std::net::SocketAddr;

/// Address families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

/// Addresses that a server has given: one of each family at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    v4: Option<SocketAddr>,
    v6: Option<SocketAddr>,
}

impl Families {
    pub(crate) const NONE: Self = Self {
        v4: false,
        v6: false,
    };
    pub(crate) const V4: Self = Self {
        v4: true,
        v6: false,
    };
    pub(crate) const V6: Self = Self {
        v4: false,
        v6: true,
    };
    pub(crate) const BOTH: Self = Self { v4: true, v6: true };

    /// The families of addresses.
    pub(crate) fn of(addresses: impl Iterator<Item = SocketAddr>) -> Self {
        addresses.fold(Self::NONE, |known, it| Self {
            v4: known.v4 || it.is_ipv4(),
            v6: known.v6 || it.is_ipv6(),
        })
    }

    /// Returns whether these are all among `others`.
    pub(crate) fn are_among(self, others: Self) -> bool {
        self.v4 <= others.v4 && self.v6 <= others.v6
    }
}

impl Addresses {
    /// Returns the address of the same family as `peer`, which reaches it.
    #[must_use]
    pub fn reaching(&self, peer: SocketAddr) -> Option<SocketAddr> {
        match peer {
            SocketAddr::V4(_) => self.v4,
            SocketAddr::V6(_) => self.v6,
        }
    }

    /// Returns whether there is one of IPv4, or else of IPv6.
    pub(crate) fn has(&self, is_ipv4: bool) -> bool {
        match is_ipv4 {
            true => self.v4.is_some(),
            false => self.v6.is_some(),
        }
    }

    /// All of them, IPv6 first.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        [self.v6, self.v4].into_iter().flatten()
    }

    /// Adds one, in place of the former one of its family.
    pub(crate) fn insert(&mut self, address: SocketAddr) {
        match address {
            SocketAddr::V4(_) => self.v4 = Some(address),
            SocketAddr::V6(_) => self.v6 = Some(address),
        }
    }
}

impl From<SocketAddr> for Addresses {
    fn from(address: SocketAddr) -> Self {
        let mut addresses = Self::default();
        addresses.insert(address);
        addresses
    }
}
