//! Addresses at which no WireGuard server can be.

use std::{fmt, net::IpAddr};

/// Most addresses that are kept of those that one file or answer gives.
const MOST: usize = 16;

/// An address that cannot be an endpoint's; shown, it completes "the name server says …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Useless {
    pub(super) address: IpAddr,
    pub(super) flaw: Flaw,
}

/// A reason why an address is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum Flaw {
    /// 0.0.0.0/8 (RFC 1122 §3.2.1.3) or `::`, as name servers say that block a name.
    #[error("no host's address")]
    Nobodys,
    #[error("a multicast address")]
    Multicast,
    #[error("a broadcast address")]
    Broadcast,
    /// Link-local address of IPv6, where nobody has said on which link.
    #[error("a link-local address without an interface")]
    LinkLocal,
    /// Address of this host: other programs listen there.
    #[error("a loopback address")]
    Loopback,
    #[error("the tunnel's own address")]
    Own,
    #[error("an address that the tunnel itself leads to")]
    Within,
}

impl Flaw {
    /// Returns what is wrong with an address, whoever has named it.
    pub(super) fn of(address: IpAddr) -> Option<Self> {
        let is_nobodys = match address {
            IpAddr::V4(v4) => v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unspecified(),
        };
        let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if is_nobodys {
            Some(Self::Nobodys)
        } else if address.is_multicast() {
            Some(Self::Multicast)
        } else if is_broadcast {
            Some(Self::Broadcast)
        } else if is_link_local {
            Some(Self::LinkLocal)
        } else {
            None
        }
    }

    /// Returns what is wrong with an address that a name server gives. `own`: the tunnel's addresses. `source`: the one
    /// from which this host would send to it, if any.
    pub(super) fn of_answer(
        address: IpAddr,
        own: &[IpAddr],
        source: impl FnOnce(IpAddr) -> Option<IpAddr>,
    ) -> Option<Self> {
        if let Some(flaw) = Self::of(address) {
            Some(flaw)
        } else if address.is_loopback() {
            Some(Self::Loopback)
        } else if own.contains(&address) {
            Some(Self::Own)
        } else if source(address).is_some_and(|it| own.contains(&it)) {
            Some(Self::Within)
        } else {
            None
        }
    }
}

/// The first addresses without a flaw, each once; and the first one with a flaw.
pub(super) fn usable(
    addresses: impl IntoIterator<Item = IpAddr>,
    flaw: impl Fn(IpAddr) -> Option<Flaw>,
) -> (Vec<IpAddr>, Option<Useless>) {
    let (mut usable, mut useless) = (Vec::new(), None);
    for address in addresses {
        let address = address.to_canonical();
        if usable.contains(&address) {
            continue;
        }
        match flaw(address) {
            None => usable.push(address),
            Some(flaw) => useless = useless.or(Some(Useless { address, flaw })),
        }
        if usable.len() == MOST {
            break;
        }
    }
    (usable, useless)
}

impl fmt::Display for Useless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.address, self.flaw)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_that_no_server_can_have_is_told_by_its_flaw() {
        for (text, expected) in [
            ("0.0.0.0", Flaw::Nobodys),
            ("0.1.2.3", Flaw::Nobodys),
            ("::", Flaw::Nobodys),
            ("::ffff:0.0.0.0", Flaw::Nobodys),
            ("224.0.0.1", Flaw::Multicast),
            ("239.255.255.255", Flaw::Multicast),
            ("ff02::1", Flaw::Multicast),
            ("255.255.255.255", Flaw::Broadcast),
            ("fe80::1", Flaw::LinkLocal),
            ("127.0.0.1", Flaw::Loopback),
            ("127.255.0.1", Flaw::Loopback),
            ("::1", Flaw::Loopback),
            ("::ffff:127.0.0.1", Flaw::Loopback),
            ("10.8.0.2", Flaw::Own),
            ("fd08::2", Flaw::Own),
            ("10.8.0.77", Flaw::Within),
        ] {
            let (kept, useless) = answered(&[text]);
            assert_eq!(kept, [] as [IpAddr; 0], "{text}");
            assert_eq!(useless.unwrap().flaw, expected, "{text}");
        }
    }

    #[test]
    fn private_and_public_addresses_are_kept_in_order_and_each_once() {
        let texts = [
            "10.0.0.1",
            "192.168.1.1",
            "0.0.0.0",
            "100.64.0.1",
            "169.254.1.1",
            "::ffff:10.0.0.1",
            "203.0.113.1",
            "255.255.255.254",
            "fd00::1",
            "2001:db8::1",
        ];
        let (kept, useless) = answered(&texts);
        let kept: Vec<_> = kept.iter().map(IpAddr::to_string).collect();
        let expected = [&texts[..2], &texts[3..5], &texts[6..]].concat();
        assert_eq!(kept, expected);
        let useless = useless.unwrap().to_string();
        assert_eq!(useless, "0.0.0.0, no host's address");
    }

    #[test]
    fn a_person_may_name_this_host_and_the_tunnel() {
        for text in ["127.0.0.1", "::1", "10.8.0.2", "10.8.0.77"] {
            assert_eq!(Flaw::of(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn of_thousands_of_addresses_a_few_are_kept() {
        let many = (0..5_000_u32).map(|n| Ipv4Addr::from_bits(0xcb00_0000 + n).into());
        let (kept, _) = usable(many.clone(), Flaw::of);
        assert_eq!(kept, many.take(MOST).collect::<Vec<_>>());
        let same = std::iter::repeat_n("192.0.2.1".parse().unwrap(), 5_000);
        let last = ["192.0.2.2".parse().unwrap()];
        assert_eq!(usable(same.chain(last), Flaw::of).0.len(), 2);
    }

    /// Returns what is left of an answer, and the first flaw, where only 10.8.0.77 is behind the tunnel.
    fn answered(texts: &[&str]) -> (Vec<IpAddr>, Option<Useless>) {
        let own = ["10.8.0.2", "fd08::2"].map(|it| it.parse().unwrap());
        let source = |address: IpAddr| match address.to_string().as_str() {
            "10.8.0.77" => Some(own[0]),
            _ => "192.168.1.2".parse().ok(),
        };
        let addresses = texts.iter().map(|text| text.parse().unwrap());
        usable(addresses, |address| Flaw::of_answer(address, &own, source))
    }
}
