//! Access to a listener.

use std::{net::IpAddr, str::FromStr};

use ip_network::IpNetwork;

/// The bits in front of an IPv4 address that is mapped to IPv6 (RFC 4291, section 2.5.5.2).
const MAPPED: u8 = 96;

/// An address, or all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(IpNetwork);

/// Lists of clients. Without any, everyone is allowed whom the listener can hear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// If there are any, nobody else is allowed.
    pub allow: Vec<Prefix>,
    /// Takes precedence over `allow`.
    pub deny: Vec<Prefix>,
}

impl Prefix {
    /// The first `bits` bits of an address; `None` if it has fewer. IPv4-mapped ones are those of IPv4, as which all
    /// addresses are compared.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let (address, bits) = match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(mapped)) if bits >= MAPPED => (mapped.into(), bits - MAPPED),
            _ => (address, bits),
        };
        IpNetwork::new_truncate(address, bits).ok().map(Self)
    }

    /// Whether an address, which is not IPv4-mapped, begins with these bits.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    /// The address, if it is one alone.
    pub(crate) fn only_address(&self) -> Option<IpAddr> {
        let address = self.0.network_address();
        let whole = if address.is_ipv4() { 32 } else { 128 };
        (self.bits() == whole).then_some(address)
    }

    /// How many bits there are.
    pub(crate) fn bits(&self) -> u8 {
        self.0.netmask()
    }
}

impl From<Prefix> for IpNetwork {
    fn from(prefix: Prefix) -> Self {
        prefix.0
    }
}

impl Access {
    /// Whether a client may use the listener.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let is_in = |list: &[Prefix]| list.iter().any(|prefix| prefix.contains(client));
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

/// Not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a prefix, such as 192.0.2.0/24")]
pub struct InvalidPrefix;

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidPrefix)?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| InvalidPrefix)?,
            None => whole,
        };
        Self::new(address, bits).ok_or(InvalidPrefix)
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deny_list_takes_precedence_and_an_allow_list_excludes_everyone_else() {
        let access = Access {
            allow: vec![prefix("10.0.0.0/8"), prefix("2001:db8::1")],
            deny: vec![prefix("10.1.0.0/16")],
        };
        for (client, is_allowed) in [
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("10.1.0.1", false),
            ("192.0.2.1", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
        ] {
            assert_eq!(
                access.allows(client.parse().unwrap()),
                is_allowed,
                "{client}"
            );
        }
        assert!(Access::default().allows("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn host_bits_are_ignored_and_anything_else_is_refused() {
        assert_eq!(prefix("10.1.2.3/8"), prefix("10.0.0.0/8"));
        assert_eq!(prefix("::ffff:10.1.2.3/104"), prefix("10.0.0.0/8"));
        assert_eq!(prefix("::ffff:10.1.2.3"), prefix("10.1.2.3"));
        assert_eq!(prefix("::ffff:10.1.2.3/95"), prefix("::fffe:0:0/95"));
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "::/129",
            "example.com",
            "10.0.0/8",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(InvalidPrefix), "{text}");
        }
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }
}
