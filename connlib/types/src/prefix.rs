//! An address with a prefix length.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use thiserror::Error;

/// An address with a prefix length, such as `10.0.0.2/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "String", try_from = "String")
)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// The bits in front of an IPv4 address that is mapped to IPv6.
const MAPPED: u8 = 96;

/// Text that does not parse as a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid prefix `{0}`: write an address and a length, such as 10.0.0.0/8 or fd00::/8")]
pub struct InvalidPrefix(pub String);

impl Prefix {
    /// Longest prefix that counts as a part of a default route, as halves do.
    pub const LONGEST_PART: u8 = 6;

    /// Creates a prefix with its host bits; `None` if `length` exceeds the address's 32 or 128 bits.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let prefix = Self { address, length };
        (length <= prefix.bits()).then_some(prefix)
    }

    /// Creates a prefix without host bits; `None` if `length` exceeds the address's 32 or 128 bits.
    #[must_use]
    pub fn network_of(address: IpAddr, length: u8) -> Option<Self> {
        Some(Self::new(address, length)?.network())
    }

    /// The prefix that holds this address alone.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// The prefix that holds every address of a family.
    #[must_use]
    pub fn default_of(ipv6: bool) -> Self {
        let address = match ipv6 {
            false => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { address, length: 0 }
    }

    /// The IPv6 network that begins with these words.
    #[must_use]
    pub const fn of_ipv6([first, second]: [u16; 2], length: u8) -> Self {
        Self::of(
            IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)),
            length,
        )
    }

    /// A network of the crate's own.
    pub(crate) const fn of(address: IpAddr, length: u8) -> Self {
        Self { address, length }
    }

    /// The address, including its host bits.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns whether this is IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns whether this holds every address of its family.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.length == 0
    }

    /// Returns whether this holds a single address.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.length == self.bits()
    }

    /// The same network, without host bits.
    #[must_use]
    pub fn network(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length));
                Ipv4Addr::from(u32::from(v4) & mask.unwrap_or(0)).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length));
                Ipv6Addr::from(u128::from(v6) & mask.unwrap_or(0)).into()
            }
        };
        Self { address, ..*self }
    }

    /// Returns the IPv4 network that an IPv4-mapped one stands for (RFC 4291, section 2.5.5.2); any other as it is.
    #[must_use]
    pub fn unmapped(&self) -> Self {
        match self.address.to_canonical() {
            IpAddr::V4(v4) if self.is_ipv6() && self.length >= MAPPED => Self {
                address: v4.into(),
                length: self.length - MAPPED,
            },
            _ => *self,
        }
    }

    /// Returns whether every address of `other` is in this network.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        let cut = Self {
            address: other.address,
            length: self.length,
        };
        self.is_ipv6() == other.is_ipv6()
            && self.length <= other.length
            && cut.network() == self.network()
    }

    /// Returns whether an address is in this network.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        self.contains(&Self::host(address))
    }

    /// Returns whether this and `other` have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// The fewest prefixes that hold this network's addresses but none of `holes`.
    #[must_use]
    pub fn without(&self, holes: &[Self]) -> Vec<Self> {
        if holes.iter().any(|hole| hole.contains(self)) {
            return Vec::new();
        }
        if !holes.iter().any(|hole| self.contains(hole)) {
            return vec![self.network()];
        }
        self.halves()
            .iter()
            .flat_map(|half| half.without(holes))
            .collect()
    }

    /// The two networks of which this one consists; a single address has none.
    #[must_use]
    pub fn halves(&self) -> [Self; 2] {
        let length = self.length + 1;
        let low = self.network().address;
        let high = match low {
            IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4) | 1 << (32 - u32::from(length))).into(),
            IpAddr::V6(v6) => {
                Ipv6Addr::from(u128::from(v6) | 1 << (128 - u32::from(length))).into()
            }
        };
        [low, high].map(|address| Self { address, length })
    }

    fn bits(&self) -> u8 {
        Self::host(self.address).length
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    /// Without a length, the prefix holds the address alone.
    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let wrong = || InvalidPrefix(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address = address.parse().map_err(|_| wrong())?;
        match length {
            Some(length) => Self::new(address, length).ok_or_else(wrong),
            None => Ok(Self::host(address)),
        }
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl TryFrom<String> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(text: String) -> Result<Self, InvalidPrefix> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_without_a_hole_is_cut_into_the_fewest_prefixes() {
        let cut = prefix("10.0.0.0/8").without(&[prefix("10.128.0.0/10")]);
        assert_eq!(cut, [prefix("10.0.0.0/9"), prefix("10.192.0.0/10")]);
        let host = prefix("::/0").without(&[prefix("::1/128")]);
        assert_eq!(host.len(), 128);
        assert!(!host.iter().any(|rest| rest.contains(&prefix("::1"))));
    }

    #[test]
    fn a_network_inside_a_hole_vanishes_and_another_family_is_no_hole() {
        let network = prefix("10.1.0.0/16");
        assert_eq!(network.without(&[prefix("10.0.0.0/8")]), []);
        assert_eq!(network.without(&[prefix("::/0")]), [network]);
    }

    #[test]
    fn prefixes_survive_their_text_form() {
        for text in ["0.0.0.0/0", "10.0.0.2/24", "fd00::2/64", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("10.0.0.2"), prefix("10.0.0.2/32"));
        for wrong in ["10.0.0.2/33", "x", "10.0.0.2/", "::/129"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn host_bits_are_kept_or_cleared_as_the_constructor_says() {
        let address = "10.1.2.3".parse().unwrap();
        assert_eq!(Prefix::new(address, 8), Some(prefix("10.1.2.3/8")));
        assert_eq!(Prefix::network_of(address, 8), Some(prefix("10.0.0.0/8")));
        for new in [Prefix::new, Prefix::network_of] {
            assert_eq!(new(address, 33), None);
        }
        assert!(prefix("10.1.2.3/8").holds("10.9.0.1".parse().unwrap()));
        assert!(!prefix("10.1.2.3/8").holds("::".parse().unwrap()));
    }

    #[test]
    fn a_mapped_prefix_is_one_of_ipv4_if_it_holds_no_other_address() {
        for (mapped, unmapped) in [
            ("::ffff:10.1.2.3/104", "10.1.2.3/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:10.1.2.3/95", "::ffff:10.1.2.3/95"),
            ("10.0.0.0/8", "10.0.0.0/8"),
        ] {
            assert_eq!(prefix(mapped).unmapped(), prefix(unmapped), "{mapped}");
        }
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }
}
