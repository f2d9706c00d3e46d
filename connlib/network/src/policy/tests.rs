use proptest::prelude::*;

use super::*;

/// Refused IPv4 ranges, written down apart from the code.
const FORBIDDEN_V4: [&str; 12] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "169.254.169.254/32",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    OWN_V4,
    DENIED_V4,
];
const FORBIDDEN_V6: [&str; 13] = [
    "::/128",
    "::1/128",
    "::/96",
    "64:ff9b:1::/48",
    "fe80::/10",
    "ff00::/8",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "fd00:c1::a9fe:a9fe/128",
    "fd00:42::42/128",
    "fd00:a9fe:a9fe::1/128",
    "fd00:100::100:200/128",
    OWN_V6,
];
const OWN_V4: &str = "192.0.2.7/32";
const OWN_V6: &str = "2001:db8::7/128";
const DENIED_V4: &str = "198.51.100.0/24";

#[test]
fn what_is_on_the_internet_or_in_private_networks_may_be_reached() {
    for target in [
        "1.0.0.0",
        "8.8.8.8",
        "10.0.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "169.255.0.0",
        "172.16.0.1",
        "192.0.2.6",
        "192.168.1.1",
        "223.255.255.255",
        "100.64.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "64:ff9b:2::1",
        "2001:4860:4860::8888",
        "2001:db8::6",
        // 6to4 and Teredo of public addresses.
        "2002:808:808::1",
        "2001:0:808:808:0:fffe:f7f7:f7f7",
        "fd00::1",
        "fec0::1",
    ] {
        assert_eq!(check(&policy(), target), Ok(()), "{target}");
    }
}

#[test]
fn an_allowed_prefix_opens_ranges_that_are_no_more_specific() {
    for (allowed, target, is_opened) in [
        ("127.0.0.0/8", "127.0.0.1", true),
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "::ffff:127.0.0.1", true),
        ("::ffff:127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("126.0.0.0/7", "127.0.0.1", false),
        ("0.0.0.0/0", "127.0.0.1", false),
        ("::/0", "127.0.0.1", false),
        ("::/0", "::1", false),
        ("::1", "::1", true),
        // All of link-local, but not the metadata in it.
        ("169.254.0.0/16", "169.254.1.1", true),
        ("169.254.0.0/16", "169.254.169.254", false),
        ("169.254.169.254", "169.254.169.254", true),
        // This host must be named itself.
        ("192.0.2.0/24", "192.0.2.7", false),
        ("192.0.2.7", "192.0.2.7", true),
        ("2001:db8::/32", "2001:db8::7", false),
        ("2001:db8::7", "2001:db8::7", true),
        // What stands for an address is not that address.
        ("127.0.0.0/8", "64:ff9b::127.0.0.1", false),
        ("64:ff9b::/96", "64:ff9b::127.0.0.1", false),
        ("64:ff9b::127.0.0.0/104", "64:ff9b::127.0.0.1", true),
        ("64:ff9b:1::/48", "64:ff9b:1::8.8.8.8", true),
        ("64:ff9b:1::/48", "64:ff9b:1::127.0.0.1", false),
        ("64:ff9b:1::127.0.0.0/104", "64:ff9b:1::127.0.0.1", true),
        ("64:ff9b:1:7f00::/56", "64:ff9b:1:7f00:0:100::", true),
        ("64:ff9b:1:a9fe::/64", "64:ff9b:1:a9fe:a9:fe00::", false),
        (
            "64:ff9b:1:a9fe:a9:fe00::/88",
            "64:ff9b:1:a9fe:a9:fe00::",
            true,
        ),
        ("2002::/16", "2002:7f00:1::1", false),
        ("2002:7f00::/24", "2002:7f00:1::1", true),
    ] {
        let mut policy = policy();
        policy.allow = vec![prefix(allowed)];
        let expected = match is_opened {
            true => Ok(()),
            false => Err(Refusal::Forbidden),
        };
        assert_eq!(check(&policy, target), expected, "{allowed}: {target}");
    }
}

#[test]
fn the_deny_list_takes_precedence_also_for_what_stands_for_an_address() {
    let mut policy = policy();
    policy.allow = vec![prefix("198.51.100.7")];
    policy.deny.push(prefix("2001:db8:1::/48"));
    for target in [
        "198.51.100.7",
        "::ffff:198.51.100.7",
        "64:ff9b::198.51.100.7",
        "2002:c633:6407::1",
        "2001:db8:1::1",
    ] {
        let expected = Err(Refusal::TargetDenied);
        assert_eq!(check(&policy, target), expected, "{target}");
    }
}

/// With what translators should find zero, and with what they may overlook.
#[test]
fn no_local_translator_leads_to_a_forbidden_address_however_much_of_its_range_is_open() {
    let mut policy = policy();
    policy.allow = vec![prefix("::/0"), prefix("64:ff9b:1::/48")];
    for forbidden in ["169.254.169.254", "127.0.0.1", "192.0.2.7", "198.51.100.9"] {
        for length in [48, 56, 64, 96] {
            for filler in [0, u128::MAX] {
                let target = translated(0x0064_ff9b_0001 << 80, length, forbidden, filler);
                assert!(check(&policy, &target).is_err(), "{length}: {target}");
            }
        }
    }
    for length in [48, 56, 64, 96] {
        let target = translated(0x0064_ff9b_0001 << 80, length, "8.8.8.8", 0);
        assert_eq!(check(&policy, &target), Ok(()), "{length}: {target}");
    }
}

#[test]
fn no_translator_leads_to_the_services_of_clouds_whatever_its_prefix() {
    let mut policy = policy();
    policy.allow = vec![prefix("::/0")];
    for length in [32, 40, 48, 56, 64, 96] {
        for filler in [0, u128::MAX] {
            for cloud in ["169.254.169.254", "168.63.129.16", "100.100.100.200"] {
                let target = translated(0x2001_0db8 << 96, length, cloud, filler);
                let expected = Err(Refusal::Forbidden);
                assert_eq!(check(&policy, &target), expected, "{length}: {target}");
                policy.allow.push(prefix(&target));
                assert_eq!(check(&policy, &target), Ok(()), "{length}: {target}");
                policy.allow.pop();
            }
            // What is no more than rare elsewhere may be a host.
            let target = translated(0x2001_0db8 << 96, length, "127.0.0.1", filler);
            assert_eq!(check(&policy, &target), Ok(()), "{length}: {target}");
        }
    }
}

/// An IPv4 address behind a prefix of this length (RFC 6052, section 2.2), before bits of `filler`.
fn translated(prefix: u128, length: u32, address: &str, filler: u128) -> String {
    let address = u128::from(address.parse::<Ipv4Addr>().unwrap().to_bits());
    let mut bits = prefix;
    for n in 0..32 {
        let at = length + n;
        let at = if length < 96 && at >= 64 { at + 8 } else { at };
        bits |= (address >> (31 - n) & 1) << (127 - at);
    }
    let end = length + 32;
    let end = if length < 96 && end > 64 {
        end + 8
    } else {
        end
    };
    bits |= filler & u128::MAX.checked_shr(end).unwrap_or(0);
    Ipv6Addr::from_bits(bits).to_string()
}

proptest! {
    #[test]
    fn no_form_of_a_forbidden_address_passes(
        address in forbidden_v4(),
        form in 0..FORMS,
        filler in any::<u128>(),
        port in any::<u16>(),
        is_open in any::<bool>(),
    ) {
        let mut policy = policy();
        if is_open {
            policy.allow = vec![prefix("0.0.0.0/0"), prefix("::/0"), prefix("64:ff9b::/96")];
        }
        let target = SocketAddr::new(shown_as(address, form, filler), port);
        prop_assert!(policy.check(target).is_err(), "{}", target);
    }

    #[test]
    fn no_forbidden_address_of_ipv6_passes(address in forbidden_v6(), port in any::<u16>()) {
        let target = SocketAddr::new(address.into(), port);
        prop_assert!(policy().check(target).is_err(), "{}", target);
    }

    #[test]
    fn an_address_opens_itself_unless_it_is_denied(bits in any::<u128>(), is_ipv4 in any::<bool>()) {
        let address: IpAddr = match is_ipv4 {
            true => Ipv4Addr::from_bits(bits as u32).into(),
            false => Ipv6Addr::from_bits(bits).into(),
        };
        let mut policy = policy();
        policy.allow = vec![prefix(&address.to_string())];
        let outcome = policy.check(SocketAddr::new(address, 80));
        prop_assert!(matches!(outcome, Ok(()) | Err(Refusal::TargetDenied)), "{}", address);
    }
}

/// The ways to write an IPv4 address as one that leads there.
const FORMS: u8 = 9;

fn shown_as(address: Ipv4Addr, form: u8, filler: u128) -> IpAddr {
    let bits = u128::from(address.to_bits());
    let low = |bits: u32| filler & ((1 << bits) - 1);
    let shown = match form {
        0 => return address.into(),
        // IPv4-mapped, IPv4-compatible, IPv4-translated.
        1 => 0xffff << 32 | bits,
        2 => bits,
        3 => 0xffff_0000 << 32 | bits,
        // Through a translator, by the well-known prefix and a local one.
        4 => 0x0064_ff9b << 96 | bits,
        5 => 0x0064_ff9b_0001 << 80 | low(48) << 32 | bits,
        // 6to4.
        6 => 0x2002 << 112 | bits << 80 | low(80),
        // Teredo, as the server and as the client.
        7 => 0x2001_0000 << 96 | bits << 64 | low(64),
        _ => 0x2001_0000 << 96 | low(64) << 32 | u128::from(!address.to_bits()),
    };
    Ipv6Addr::from_bits(shown).into()
}

fn forbidden_v4() -> impl Strategy<Value = Ipv4Addr> {
    let range = proptest::sample::select(FORBIDDEN_V4.to_vec());
    (range, any::<u32>()).prop_map(|(range, filler)| match within(range, filler.into()) {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => unreachable!(),
    })
}

fn forbidden_v6() -> impl Strategy<Value = Ipv6Addr> {
    let range = proptest::sample::select(FORBIDDEN_V6.to_vec());
    (range, any::<u128>()).prop_map(|(range, filler)| match within(range, filler) {
        IpAddr::V4(_) => unreachable!(),
        IpAddr::V6(address) => address,
    })
}

/// The address of a range that ends with these bits.
fn within(range: &str, filler: u128) -> IpAddr {
    let (address, bits) = range.split_once('/').unwrap();
    let bits: u32 = bits.parse().unwrap();
    match address.parse().unwrap() {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shr(bits).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() | filler as u32 & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shr(bits).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() | filler & mask).into()
        }
    }
}

fn policy() -> Policy {
    // Hosts have the first, too, but it is in a range of its own.
    let own = ["127.0.0.1/32", OWN_V4, OWN_V6].map(|it| within(it, 0));
    Policy {
        allow: Vec::new(),
        deny: vec![prefix(DENIED_V4)],
        own: Own::fixed(own),
        ..Policy::default()
    }
}

fn check(policy: &Policy, target: &str) -> Result<(), Refusal> {
    policy.check(SocketAddr::new(target.parse().unwrap(), 80))
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}
