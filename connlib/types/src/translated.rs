//! IPv4 addresses inside those of IPv6, as translators (NAT64) read them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Lengths in bits of a translator's prefix (RFC 6052, section 2.2).
const PREFIX_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// Services that clouds offer to their machines alone, with credentials for whoever asks, from the clouds' documentation.
const CLOUD_SERVICES: [Ipv4Addr; 7] = [
    // Instance metadata: Amazon EC2, Microsoft Azure, Google Cloud, Oracle Cloud, OpenStack and others.
    Ipv4Addr::new(169, 254, 169, 254),
    // Credentials of tasks and pods: Amazon ECS, Amazon EKS.
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    // Instance metadata: Scaleway.
    Ipv4Addr::new(169, 254, 42, 42),
    // Instance metadata: Alibaba Cloud.
    Ipv4Addr::new(100, 100, 100, 200),
    // The agent's host: Microsoft Azure.
    Ipv4Addr::new(168, 63, 129, 16),
    // Instance metadata: Oracle Cloud Classic.
    Ipv4Addr::new(192, 0, 0, 192),
];

/// An IPv4 address that a translator with a prefix of some length would read in an address of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// Bits of the translator's prefix.
    pub prefix: u8,
}

impl Translated {
    /// All that translators may read in an address, whatever the length of their prefix. Bits that must be zero may be
    /// anything: some translators ignore them.
    pub fn all_in(address: Ipv6Addr) -> impl Iterator<Item = Self> {
        let bits = address.to_bits();
        // Without bits 64 to 71, which belong to no IPv4 address.
        let joined = bits >> 64 << 56 | bits & ((1 << 56) - 1);
        PREFIX_LENGTHS.into_iter().map(move |prefix| {
            let inner = match prefix {
                96 => bits,
                _ => joined >> (120 - 32 - prefix),
            };
            Self {
                address: Ipv4Addr::from_bits(inner as u32),
                prefix,
            }
        })
    }

    /// Returns how many leading bits of the IPv6 address lead to this many leading bits of the IPv4 address.
    #[must_use]
    pub fn bits_before(&self, bits: u8) -> u8 {
        let end = self.prefix + bits;
        match self.prefix < 96 && end > 64 {
            true => end + 8,
            false => end,
        }
    }
}

/// Returns whether an IPv4 address is a service of a cloud that trusts whoever reaches it.
#[must_use]
pub fn is_cloud_service(address: Ipv4Addr) -> bool {
    CLOUD_SERVICES.contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 6052, section 2.4: 192.0.2.33 behind prefixes of each length.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        for (address, prefix, end) in [
            ("2001:db8:c000:221::", 32, 64),
            ("2001:db8:1c0:2:21::", 40, 80),
            ("2001:db8:122:c000:2:2100::", 48, 88),
            ("2001:db8:122:3c0:0:221::", 56, 96),
            ("2001:db8:122:344:c0:2:2100::", 64, 104),
            ("2001:db8:122:344::192.0.2.33", 96, 128),
        ] {
            let address: Ipv6Addr = address.parse().unwrap();
            let mut all = Translated::all_in(address);
            let read = all.find(|it| it.prefix == prefix).unwrap();
            assert_eq!(read.address, Ipv4Addr::new(192, 0, 2, 33), "{address}");
            assert_eq!(read.bits_before(32), end, "{address}");
        }
    }
}
