//! hosts(5).

use std::net::IpAddr;

/// The addresses that the text of a hosts file gives a name, in its order.
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
    lines.collect()
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
}
