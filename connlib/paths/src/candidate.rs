//! Addresses that are never probed, whoever names them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use convoy_types::{Translated, is_cloud_service};

/// Services of clouds that trust whoever reaches them, beside those of IPv4: metadata of virtual machines.
const CLOUD_SERVICES: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Returns whether a peer may make this side send to `address`: a single machine beyond this one, and no service of a
/// cloud.
///
/// Addresses inside tunnels are the caller's to refuse.
#[must_use]
pub fn is_probeable(address: SocketAddr) -> bool {
    let is_harmless = match address.ip() {
        IpAddr::V4(v4) => is_harmless_v4(v4),
        IpAddr::V6(v6) => is_harmless_v6(v6),
    };
    address.port() != 0 && is_harmless
}

fn is_harmless_v4(v4: Ipv4Addr) -> bool {
    is_unicast_v4(v4) && !is_cloud_service(v4)
}

/// Translators may have any prefix: an address in which one would read a cloud's service is none of a machine's.
fn is_harmless_v6(v6: Ipv6Addr) -> bool {
    let leads_to_cloud = Translated::all_in(v6).any(|inner| is_cloud_service(inner.address));
    is_unicast_v6(v6) && !leads_to_cloud && !CLOUD_SERVICES.contains(&v6)
}

/// Returns whether the address names one machine beyond this link's own. The link-local range holds the metadata of
/// most clouds.
fn is_unicast_v4(v4: Ipv4Addr) -> bool {
    let [first, ..] = v4.octets();
    let is_reserved = first == 0 || first >= 224;
    !is_reserved && !v4.is_loopback() && !v4.is_link_local()
}

fn is_unicast_v6(v6: Ipv6Addr) -> bool {
    let is_special = v6.is_loopback() || v6.is_unspecified() || v6.is_multicast();
    match v6.segments() {
        _ if is_special || v6.is_unicast_link_local() => false,
        // NAT64 carries an IPv4 address (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_harmless_v4(Ipv4Addr::from_bits(v6.to_bits() as u32)),
        // So do mapped and compatible addresses, 6to4, Teredo and local NAT64, for which there is no need.
        [0, 0, 0, 0, 0, ..] | [0x2002, ..] | [0x2001, 0, ..] | [0x64, 0xff9b, ..] => false,
        // Site-local addresses are deprecated (RFC 3879).
        [first, ..] => first & 0xffc0 != 0xfec0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_aim_this_side_at_itself_at_many_or_at_a_cloud() {
        for address in [
            "0.0.0.0:1",
            "0.1.2.3:1",
            "127.0.0.1:1",
            "127.255.0.9:53",
            "169.254.169.254:80",
            "169.254.0.1:1",
            "168.63.129.16:80",
            "100.100.100.200:80",
            "224.0.0.251:5353",
            "239.255.255.250:1900",
            "240.0.0.1:1",
            "255.255.255.255:67",
            "192.0.2.1:0",
            "[::]:1",
            "[::1]:1",
            "[::127.0.0.1]:1",
            "[::ffff:127.0.0.1]:1",
            "[::ffff:192.0.2.1]:1",
            "[64:ff9b::127.0.0.1]:1",
            "[64:ff9b::a9fe:a9fe]:80",
            "[64:ff9b::168.63.129.16]:80",
            "[64:ff9b:1::1]:1",
            // Behind translators with prefixes of each length.
            "[2001:db8:a9fe:a9fe::]:80",
            "[2001:db8:a9:fea9:fe::]:80",
            "[2001:db8:1:a9fe:a9:fe00::]:80",
            "[2001:db8:1:a9:fe:a9fe::]:80",
            "[2001:db8:1:1:a9:fea9:fe00:0]:80",
            "[2001:db8:1:1::a9fe:a9fe]:80",
            "[2001:db8:64::168.63.129.16]:80",
            "[2002:7f00:1::1]:1",
            "[2001:0:7f00:1::1]:1",
            "[fe80::1]:1",
            "[fec0::1]:1",
            "[ff02::fb]:5353",
            "[fd00:ec2::254]:80",
            "[fd20:ce::254]:80",
        ] {
            assert!(!is_probeable(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn machines_of_the_net_and_of_the_home_are_probed() {
        for address in [
            "192.0.2.1:51820",
            "10.1.2.3:1",
            "192.168.1.2:51820",
            "100.64.0.9:443",
            "[2001:db8::1]:51820",
            "[fd00::1]:51820",
            "[64:ff9b::192.0.2.1]:51820",
            "[2001:db8::10.0.0.1]:51820",
        ] {
            assert!(is_probeable(address.parse().unwrap()), "{address}");
        }
    }
}
