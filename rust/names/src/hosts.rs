//! hosts(5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that the text of a hosts file gives a name, in its order; those of `localhost` even without it
/// (RFC 6761 §6.3).
pub(super) fn addresses_of(name: &str, text: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let lines = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words
            .any(|word| word.eq_ignore_ascii_case(name))
            .then_some(address)
    });
    let listed: Vec<_> = lines.collect();
    let last = name.rsplit('.').next().unwrap_or_default();
    match listed.is_empty() && last.eq_ignore_ascii_case("localhost") {
        true => vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
        false => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_name_are_found() {
        let text = "\
            127.0.0.1\tlocalhost\n\
            # 192.0.2.8 vpn.example.org\n\
            192.0.2.1 other VPN.example.org # comment vpn2.example.org\n\
            2001:db8::1 vpn.example.org\n\
            fe80::1%eth0 vpn.example.org\n\
            nonsense vpn.example.org\n\
            192.0.2.9\n";
        let expected: Vec<IpAddr> = ["192.0.2.1", "2001:db8::1"]
            .map(|it| it.parse().unwrap())
            .into();
        assert_eq!(addresses_of("vpn.example.org", text), expected);
        assert_eq!(addresses_of("Vpn.Example.Org.", text), expected);
        for unknown in ["vpn2.example.org", "example.org", ""] {
            assert_eq!(addresses_of(unknown, text), [] as [IpAddr; 0], "{unknown}");
        }
    }

    #[test]
    fn localhost_is_this_host_unless_the_file_says_otherwise() {
        let expected: [IpAddr; 2] = ["::1", "127.0.0.1"].map(|it| it.parse().unwrap());
        for name in ["localhost", "LocalHost.", "vpn.localhost"] {
            assert_eq!(addresses_of(name, ""), expected, "{name}");
        }
        let listed: [IpAddr; 1] = ["127.0.0.1".parse().unwrap()];
        assert_eq!(addresses_of("localhost", "127.0.0.1 localhost"), listed);
        assert_eq!(addresses_of("localhost.example", ""), [] as [IpAddr; 0]);
    }
}
