//! Addresses with a prefix length.

use std::{fmt, net::IpAddr, str::FromStr};

/// An address and the length of its network's prefix: `10.0.0.1/24`, `fd00::1/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// The prefix length in bits: 0..=32 for IPv4, 0..=128 for IPv6.
    pub prefix: u8,
}

impl Cidr {
    /// The address with the bits behind the prefix cleared.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        let host_bits = |longest: u8| u32::from(longest - self.prefix.min(longest));
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(host_bits(32)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(host_bits(128)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }
}

/// The text is no address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address with a prefix length, such as 10.0.0.1/24 or fd00::1/64")]
pub struct ParseCidrError(String);

impl ParseCidrError {
    pub(crate) fn of(cidr: &Cidr) -> Self {
        Self(cidr.to_string())
    }
}

/// An address alone stands for itself: `/32` or `/128`.
impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseCidrError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| refused())?,
            None => longest,
        };
        if prefix > longest {
            return Err(refused());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_alone_stands_for_itself() {
        assert_eq!(
            "10.0.0.1".parse::<Cidr>().unwrap().to_string(),
            "10.0.0.1/32"
        );
        assert_eq!(
            "fd00::1".parse::<Cidr>().unwrap().to_string(),
            "fd00::1/128"
        );
    }

    #[test]
    fn the_network_is_the_address_without_host_bits() {
        let network = |text: &str| text.parse::<Cidr>().unwrap().network().to_string();
        assert_eq!(network("10.1.2.3/8"), "10.0.0.0");
        assert_eq!(network("10.1.2.3/32"), "10.1.2.3");
        assert_eq!(network("10.1.2.3/0"), "0.0.0.0");
        assert_eq!(network("fd00:1::3/16"), "fd00::");
        assert_eq!(network("fd00::3/0"), "::");
    }

    #[test]
    fn a_prefix_longer_than_the_address_is_refused() {
        assert!("10.0.0.1/33".parse::<Cidr>().is_err());
        assert!("fd00::1/129".parse::<Cidr>().is_err());
        assert!("10.0.0.1/".parse::<Cidr>().is_err());
        assert!("example/24".parse::<Cidr>().is_err());
    }
}
