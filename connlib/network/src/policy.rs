//! Which targets a peer may reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::own::Own;
use convoy_types::Prefix;

use crate::counters::Refusal;

/// Lists of targets. In this order:
///
/// 1. What `deny` contains is refused.
/// 2. What no peer should reach is refused: this host, its links, multicast, reserved addresses and the services that
///    clouds offer to their machines alone. A prefix of `allow` opens such a range if it has at least as many bits:
///    `127.0.0.0/8` and `127.0.0.1` do, `0.0.0.0/0` does not. An address of this host must be named itself.
/// 3. Everything else may be reached.
///
/// An IPv6 address that stands for an IPv4 address, as for a translator or a tunnel, is refused if that is. Translators
/// with a prefix of their own (RFC 6052, section 2.2) cannot be recognised: where there is one, deny its prefix.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Opens what is refused by default.
    pub allow: Vec<Prefix>,
    /// Takes precedence over `allow`.
    pub deny: Vec<Prefix>,
    /// The addresses of this host.
    pub own: Own,
}

/// Targets that are refused by default. Those of clouds, with credentials for anyone who asks, are from the clouds'
/// documentation of their metadata services, and what is more specific has its own line.
const REFUSED_V4: [(Ipv4Addr, u32); 12] = [
    // This network (RFC 1122, section 3.2.1.3), which Linux takes for loopback.
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    // Loopback.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local (RFC 3927).
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Multicast (RFC 5771).
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // Reserved (RFC 1112, section 4), and broadcast.
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // Instance metadata: Amazon EC2, Microsoft Azure, Google Cloud, Oracle Cloud, OpenStack and others.
    (Ipv4Addr::new(169, 254, 169, 254), 32),
    // Credentials of tasks and pods: Amazon ECS, Amazon EKS.
    (Ipv4Addr::new(169, 254, 170, 2), 32),
    (Ipv4Addr::new(169, 254, 170, 23), 32),
    // Instance metadata: Scaleway.
    (Ipv4Addr::new(169, 254, 42, 42), 32),
    // Instance metadata: Alibaba Cloud.
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    // The agent's host: Microsoft Azure.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Instance metadata: Oracle Cloud Classic.
    (Ipv4Addr::new(192, 0, 0, 192), 32),
];

const REFUSED_V6: [(Ipv6Addr, u32); 10] = [
    // Unspecified, loopback, and the deprecated IPv4-compatible addresses (RFC 4291, section 2.5).
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96),
    // For translators of the local network (RFC 8215). Where the IPv4 address stands, only that network knows.
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    // Link-local.
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    // Multicast.
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
    // Amazon EC2: instance metadata at ::254, credentials of pods at ::23, name server, clock.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    // Instance metadata: Google Cloud.
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    // Instance metadata: Oracle Cloud.
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128),
    // Instance metadata: Scaleway.
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128),
    // Instance metadata: Akamai, formerly Linode.
    (Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1), 128),
    // Instance metadata: Alibaba Cloud.
    (Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200), 128),
];

impl Policy {
    /// Whether a peer may reach a target: to be asked once its name, if it has one, is resolved.
    ///
    /// # Errors
    /// [`Refusal::TargetDenied`] by the list, [`Refusal::Forbidden`] by default.
    pub fn check(&self, to: SocketAddr) -> Result<(), Refusal> {
        let address = to.ip().to_canonical();
        if self.denies(address) {
            return Err(Refusal::TargetDenied);
        }
        let Some(refused) = self.refused(address) else {
            return Ok(());
        };
        let opens = |prefix: Prefix| prefix.holds(address) && prefix.length() >= refused;
        match self.allow.iter().map(Prefix::unmapped).any(opens) {
            true => Ok(()),
            false => Err(Refusal::Forbidden),
        }
    }

    fn denies(&self, address: IpAddr) -> bool {
        let is_listed = |address| {
            self.deny
                .iter()
                .any(|prefix| prefix.unmapped().holds(address))
        };
        is_listed(address) || embedded(address).any(|(inner, _)| is_listed(inner.into()))
    }

    /// The bits of the longest prefix of an address that is refused by default.
    fn refused(&self, address: IpAddr) -> Option<u8> {
        // Loopback has a range of its own, which may be opened as a whole.
        let own = self.own.bits_of(address).filter(|_| !address.is_loopback());
        let range = match address {
            IpAddr::V4(it) => {
                let shared = |range: &Ipv4Addr| (range.to_bits() ^ it.to_bits()).leading_zeros();
                longest(&REFUSED_V4, shared)
            }
            IpAddr::V6(it) => {
                let shared = |range: &Ipv6Addr| (range.to_bits() ^ it.to_bits()).leading_zeros();
                longest(&REFUSED_V6, shared)
            }
        };
        let inner = embedded(address).filter_map(|(inner, before)| {
            let refused = self.refused(inner.into())?;
            Some(before + refused)
        });
        range.into_iter().chain(own).chain(inner).max()
    }
}

/// The bits of the longest of some ranges that contains an address, given how many leading bits the two share.
fn longest<A>(ranges: &[(A, u32)], shared: impl Fn(&A) -> u32) -> Option<u8> {
    let containing = ranges.iter().filter(|(range, bits)| shared(range) >= *bits);
    containing.map(|(_, bits)| *bits as u8).max()
}

/// The IPv4 addresses that an address of IPv6 stands for, each with the number of bits in front of it.
fn embedded(address: IpAddr) -> impl Iterator<Item = (Ipv4Addr, u8)> {
    let found = match address {
        IpAddr::V4(_) => [None, None],
        IpAddr::V6(it) => embedded_in(it.to_bits()),
    };
    found.into_iter().flatten()
}

fn embedded_in(bits: u128) -> [Option<(Ipv4Addr, u8)>; 2] {
    let (first, middle) = ((bits >> 96) as u32, (bits >> 32) as u64);
    let at = |before: u8| Ipv4Addr::from_bits((bits >> (96 - before)) as u32);
    match (first, middle) {
        // 6to4 (RFC 3056).
        (0x2002_0000..=0x2002_ffff, _) => [Some((at(16), 16)), None],
        // Teredo (RFC 4380): its server, and the client with all bits inverted.
        (0x2001_0000, _) => {
            let client = Ipv4Addr::from_bits(!at(96).to_bits());
            [Some((at(32), 32)), Some((client, 96))]
        }
        // The well-known prefix of translators (RFC 6052).
        (0x0064_ff9b, 0) => [Some((at(96), 96)), None],
        // IPv4-translated (RFC 2765).
        (0, 0xffff_0000) => [Some((at(96), 96)), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests;
