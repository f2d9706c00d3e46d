//! A policy: the targets that a peer may reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::own::Own;
use convoy_types::{Prefix, Translated, is_cloud_service};

use crate::{
    counters::Refusal,
    translators::{Discovery, Translators},
};

/// Lists of targets. In this order:
///
/// 1. What `deny` contains is refused.
/// 2. What no peer should reach is refused: this host, its links, multicast, reserved addresses and the services that
///    clouds offer to their machines alone. A prefix of `allow` opens such a range if it has at least as many bits:
///    `127.0.0.0/8` and `127.0.0.1` do, `0.0.0.0/0` does not. An address of this host must be named itself.
/// 3. Everything else may be reached.
///
/// An IPv6 address that stands for an IPv4 address, as for a translator or a tunnel, is refused if that is. In the range
/// of local translators (RFC 8215), it is if any of them would read such an address in it. A translator with a prefix of
/// its own (RFC 6052, section 2.2) is known once the resolver has named it (RFC 7050); without that, only the services of
/// clouds are refused behind it.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Allows targets that are refused by default.
    pub allow: Vec<Prefix>,
    /// Takes precedence over `allow`.
    pub deny: Vec<Prefix>,
    /// The addresses of this host.
    pub own: Own,
    /// The translators of its network.
    pub translators: Translators,
}

/// Targets that are refused by default, beside [`is_cloud_service`].
const REFUSED_V4: [(Ipv4Addr, u32); 5] = [
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
];

/// The same of IPv6. What clouds offer to their machines alone is from their documentation.
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
    /// Returns whether a peer may reach a target: to be asked once its name, if it has one, is resolved.
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

    /// Begins to ask for translators if one of them might lead to a forbidden IPv4 address; returns what to wait for
    /// before [`Self::check`] can tell. Must be called on a runtime.
    #[must_use]
    pub fn discover(&self, to: SocketAddr) -> Option<Discovery> {
        let IpAddr::V6(address) = to.ip().to_canonical() else {
            return None;
        };
        let is_forbidden = |read: Translated| {
            let inner = IpAddr::V4(read.address);
            read.address.octets()[0] != 0 && (self.denies(inner) || self.refused(inner).is_some())
        };
        let matters = self.check(to).is_ok() && Translated::all_in(address).any(is_forbidden);
        matters.then(|| self.translators.discover()).flatten()
    }

    fn denies(&self, address: IpAddr) -> bool {
        let is_listed = |address| {
            self.deny
                .iter()
                .any(|prefix| prefix.unmapped().holds(address))
        };
        is_listed(address)
            || self
                .embedded(address)
                .any(|inner| is_listed(inner.address.into()))
    }

    /// The bits of the longest prefix of an address that is refused by default.
    fn refused(&self, address: IpAddr) -> Option<u8> {
        // Loopback has a range of its own, which may be opened as a whole.
        let own = self.own.bits_of(address).filter(|_| !address.is_loopback());
        let range = match address {
            IpAddr::V4(it) => {
                let shared = |range: &Ipv4Addr| (range.to_bits() ^ it.to_bits()).leading_zeros();
                let cloud = is_cloud_service(it).then_some(32);
                cloud.or_else(|| longest(&REFUSED_V4, shared))
            }
            IpAddr::V6(it) => {
                let shared = |range: &Ipv6Addr| (range.to_bits() ^ it.to_bits()).leading_zeros();
                longest(&REFUSED_V6, shared)
            }
        };
        let inner = self.embedded(address).filter_map(|inner| {
            let refused = self.refused(inner.address.into())?;
            Some(inner.bits_before(refused))
        });
        range.into_iter().chain(own).chain(inner).max()
    }

    /// The IPv4 addresses that an address of IPv6 stands for, or may stand for.
    fn embedded(&self, address: IpAddr) -> impl Iterator<Item = Translated> {
        let found = match address {
            IpAddr::V4(_) => [[None; 6]; 2],
            IpAddr::V6(it) => [embedded_in(it), self.translators.reads(it)],
        };
        found.into_iter().flatten().flatten()
    }
}

/// The bits of the longest of some ranges that contains an address, given how many leading bits the two share.
fn longest<A>(ranges: &[(A, u32)], shared: impl Fn(&A) -> u32) -> Option<u8> {
    let containing = ranges.iter().filter(|(range, bits)| shared(range) >= *bits);
    containing.map(|(_, bits)| *bits as u8).max()
}

fn embedded_in(address: Ipv6Addr) -> [Option<Translated>; 6] {
    let bits = address.to_bits();
    let at = |prefix: u8| Translated {
        address: Ipv4Addr::from_bits((bits >> (96 - prefix)) as u32),
        prefix,
    };
    let mut found = [None; 6];
    match ((bits >> 96) as u32, (bits >> 32) as u64) {
        // 6to4 (RFC 3056).
        (0x2002_0000..=0x2002_ffff, _) => found[0] = Some(at(16)),
        // Teredo (RFC 4380): its server, and the client with all bits inverted.
        (0x2001_0000, _) => {
            let client = Translated {
                address: Ipv4Addr::from_bits(!bits as u32),
                prefix: 96,
            };
            found[..2].copy_from_slice(&[Some(at(32)), Some(client)]);
        }
        // The well-known prefix of translators (RFC 6052), and IPv4-translated (RFC 2765).
        (0x0064_ff9b, 0) | (0, 0xffff_0000) => found[0] = Some(at(96)),
        // For translators of the local network. None translates what it reads in an address for another: zeros.
        (0x0064_ff9b, local) if local >> 48 == 1 => {
            keep(&mut found, address, |it| {
                it.prefix >= 48 && it.address.octets()[0] != 0
            });
        }
        _ => keep(&mut found, address, |it| is_cloud_service(it.address)),
    }
    found
}

fn keep(
    found: &mut [Option<Translated>; 6],
    address: Ipv6Addr,
    is_kept: impl Fn(&Translated) -> bool,
) {
    for (slot, read) in found.iter_mut().zip(Translated::all_in(address)) {
        *slot = Some(read).filter(&is_kept);
    }
}

#[cfg(test)]
mod tests;
