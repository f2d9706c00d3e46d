//! Access to a listener.

use std::net::IpAddr;

use convoy_types::Prefix;

/// Lists of clients. Without any, everyone is allowed whom the listener can hear. IPv4-mapped prefixes and clients
/// count as IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// If there are any, no other client is allowed.
    pub allow: Vec<Prefix>,
    /// Takes precedence over `allow`.
    pub deny: Vec<Prefix>,
}

impl Access {
    /// Returns whether a client may use the listener.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let is_in = |list: &[Prefix]| list.iter().any(|prefix| prefix.unmapped().holds(client));
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
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
        let mapped = Access {
            allow: vec![prefix("::ffff:10.1.2.3/104")],
            deny: vec![prefix("::ffff:10.1.0.0/112")],
        };
        for (client, is_allowed) in [
            ("10.2.0.1", true),
            ("10.1.0.1", false),
            ("192.0.2.1", false),
        ] {
            let client = client.parse().unwrap();
            assert_eq!(mapped.allows(client), is_allowed, "{client}");
        }
        assert!(Access::default().allows("192.0.2.1".parse().unwrap()));
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }
}
