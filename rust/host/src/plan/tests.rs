use super::*;
use convoy_netlink::Link;

use crate::{
    desired::{Dns, KillSwitch},
    firewall::Allowed,
    rule::Place,
};

const INDEX: u32 = 7;

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn facts(excluded: &[&str]) -> Facts {
    Facts {
        link: Link {
            index: INDEX,
            name: "wg0".to_owned(),
            mtu: 1500,
            ..Link::default()
        },
        ipv6: Ipv6::On,
        mtu: 1420,
        places: [32766, 5210].map(|before| Place { before, after: 0 }),
        allowed: Allowed {
            excluded: prefixes(excluded),
            ..Allowed::default()
        },
        nearer: Vec::new(),
        warnings: Vec::new(),
    }
}

fn desired(allowed: &[&str]) -> Desired {
    Desired {
        addresses: prefixes(&["10.9.0.2/24", "10.8.0.2/32", "fd09::2/64"]),
        allowed: prefixes(allowed),
        fwmark: Some(51820),
        ..Desired::default()
    }
}

fn texts(desired: &Desired, facts: &Facts) -> Vec<String> {
    let plan = plan("wg0", desired, facts, None, None);
    plan.iter().map(ToString::to_string).collect()
}

fn routes_of(desired: &Desired, facts: &Facts) -> Vec<String> {
    let mut texts = texts(desired, facts);
    texts.retain(|text| text.starts_with("route"));
    texts
}

#[test]
fn the_barrier_comes_first_and_what_catches_strays_before_what_diverts() {
    let mut desired = desired(&["0.0.0.0/0", "::/0"]);
    desired.kill_switch = Some(KillSwitch::default());
    desired.dns = Dns::default();
    let expected = [
        "nftables table convoy_wg0",
        "address 10.9.0.2/24",
        "address 10.8.0.2/32",
        "address fd09::2/64",
        "link up, MTU 1420",
        "route unreachable 0.0.0.0/0 in table 51820",
        "route unreachable ::/0 in table 51820",
        "route 0.0.0.0/0 in table 51820",
        "route ::/0 in table 51820",
        "route fd09::/64 in table 51820",
        "route 10.9.0.0/24 in table 51820",
        "/proc/sys/net/ipv4/conf/all/src_valid_mark",
        "IPv4 rule 32763: not fwmark 51820 lookup 51820 suppress_prefixlength 0",
        "IPv4 rule 32764: lookup main suppress_prefixlength 0",
        "IPv4 rule 32765: not fwmark 51820 lookup 51820",
        "IPv6 rule 5207: not fwmark 51820 lookup 51820 suppress_prefixlength 0",
        "IPv6 rule 5208: lookup main suppress_prefixlength 0",
        "IPv6 rule 5209: not fwmark 51820 lookup 51820",
    ];
    assert_eq!(texts(&desired, &facts(&[])), expected);
}

#[test]
fn a_network_that_an_address_connects_gets_no_route() {
    let allowed = [
        "10.9.0.0/24",
        "10.9.0.7/32",
        "10.8.0.2/32",
        "10.9.0.0/16",
        "fd09::/64",
    ];
    let expected = [
        "route 10.8.0.2/32 in table main",
        "route 10.9.0.0/16 in table main",
    ];
    assert_eq!(routes_of(&desired(&allowed), &facts(&[])), expected);
}

#[test]
fn excluded_networks_are_cut_out_of_main_and_thrown_out_of_our_table() {
    let facts = facts(&["10.1.0.0/16", "10.0.0.0/9", "2001:db8::/32"]);
    let main = routes_of(&desired(&["10.0.0.0/8"]), &facts);
    assert_eq!(main, ["route 10.128.0.0/9 in table main"]);
    let own = routes_of(&desired(&["0.0.0.0/0"]), &facts);
    let expected = [
        "route unreachable 0.0.0.0/0 in table 51820",
        "route throw 10.0.0.0/9 in table 51820",
        "route throw 10.1.0.0/16 in table 51820",
        "route 0.0.0.0/0 in table 51820",
        "route 10.9.0.0/24 in table 51820",
    ];
    assert_eq!(own, expected);
}

#[test]
fn a_numbered_table_takes_all_routes_and_needs_no_mark() {
    let mut desired = desired(&["0.0.0.0/0", "10.0.0.0/8", "10.9.0.0/24"]);
    desired.table = Table::Number(9);
    desired.fwmark = None;
    assert!(!desired.needs_mark());
    let expected = [
        "route throw 10.0.0.0/8 in table 9",
        "route 10.9.0.0/24 in table 9",
        "route 0.0.0.0/0 in table 9",
    ];
    assert_eq!(routes_of(&desired, &facts(&["10.0.0.0/8"])), expected);
    desired.table = Table::Off;
    assert_eq!(routes_of(&desired, &facts(&[])), [""; 0]);
}

#[test]
fn without_ipv6_only_ipv4_is_planned() {
    let mut facts = facts(&[]);
    facts.ipv6 = Ipv6::Absent;
    let texts = texts(&desired(&["0.0.0.0/0", "::/0"]), &facts);
    let is_ipv6 = |text: &&String| text.contains("::") || text.contains("IPv6");
    assert_eq!(texts.iter().find(is_ipv6), None);
}

#[test]
fn where_the_interface_alone_lacks_ipv6_what_is_asked_into_the_tunnel_goes_nowhere() {
    for ipv6 in [Ipv6::OffHere, Ipv6::TooNarrow(1_200)] {
        let facts = Facts { ipv6, ..facts(&[]) };
        let full = texts(&desired(&["0.0.0.0/0", "::/0"]), &facts);
        for expected in [
            "route unreachable ::/0 in table 51820",
            "route unreachable fd09::/64 in table 51820",
            "IPv6 rule 5209: not fwmark 51820 lookup 51820",
        ] {
            assert!(full.iter().any(|text| text == expected), "{full:?}");
        }
        let is_lost = |text: &&String| {
            text.starts_with("address fd09") || *text == "route ::/0 in table 51820"
        };
        assert_eq!(full.iter().find(is_lost), None);
        let split = routes_of(&desired(&["2001:db8::/32"]), &facts);
        assert_eq!(split, ["route unreachable 2001:db8::/32 in table main"]);
    }
}

#[test]
fn halves_and_smaller_parts_of_all_addresses_are_a_default_route() {
    let quarters = ["::/2", "4000::/2", "8000::/2", "c000::/2"];
    let halves = ["0.0.0.0/1", "128.0.0.0/1"];
    let desired = desired(&[&halves[..], &quarters, &["10.3.0.0/16"]].concat());
    let expected = [
        "route unreachable 0.0.0.0/0 in table 51820",
        "route unreachable ::/0 in table 51820",
        "route 0.0.0.0/0 in table 51820",
        "route ::/0 in table 51820",
        "route fd09::/64 in table 51820",
        "route 10.9.0.0/24 in table 51820",
        "route 10.3.0.0/16 in table 51820",
        "route 10.3.0.0/16 in table main",
    ];
    assert_eq!(routes_of(&desired, &facts(&[])), expected);
}

#[test]
fn parts_of_the_internet_lead_around_it_where_peers_may_be_met_anywhere() {
    let mut desired = desired(&["2000::/3", "fd10::/16"]);
    desired.addresses.clear();
    let route = |to: &str, table: &str| format!("route {to} in table {table}");
    let [global, local] = ["2000::/3", "fd10::/16"];
    let facts = facts(&[]);
    let plain = [local, global].map(|to| route(to, "main"));
    assert_eq!(routes_of(&desired, &facts), plain);
    assert!(!desired.needs_mark());
    desired.meets_peers = true;
    assert!(desired.needs_mark());
    let expected = [
        route(local, "51820"),
        route(global, "51820"),
        route(local, "main"),
    ];
    assert_eq!(routes_of(&desired, &facts), expected);
    // A default route leads around it by itself.
    desired.allowed = prefixes(&["::/0", "2001:db8::/32"]);
    let expected = route("2001:db8::/32", "main");
    assert!(routes_of(&desired, &facts).contains(&expected));
}

#[test]
fn parts_that_leave_something_out_are_no_default_route() {
    for allowed in [
        &["0.0.0.0/1"][..],
        &["0.0.0.0/1", "128.0.0.0/2"],
        &["::/1"],
        &[],
    ] {
        let desired = desired(allowed);
        assert!(
            !desired.has_default(false) && !desired.has_default(true),
            "{allowed:?}"
        );
        assert!(!desired.needs_mark());
    }
}

#[test]
fn networks_that_hold_an_endpoint_or_its_name_server_are_in_a_table_of_their_own() {
    let plain = desired(&["10.0.0.0/8", "192.168.1.0/24"]);
    assert!(!plain.needs_mark());
    for (endpoint, resolver) in [("10.53.0.53", "198.51.100.1"), ("203.0.113.1", "10.9.0.1")] {
        let held = Desired {
            endpoints: vec![endpoint.parse().unwrap()],
            servers: vec![resolver.parse().unwrap()],
            ..plain.clone()
        };
        assert!(held.needs_mark());
        let nearer = prefixes(&["10.53.0.0/24", "192.168.1.0/24"]);
        let facts = Facts {
            nearer,
            ..facts(&[])
        };
        let texts = texts(&held, &facts);
        for expected in [
            "route throw 10.53.0.0/24 in table 51820",
            "route 10.0.0.0/8 in table 51820",
            "route 192.168.1.0/24 in table 51820",
            "IPv4 rule 32763: not fwmark 51820 lookup 51820 suppress_prefixlength 0",
        ] {
            assert!(texts.iter().any(|text| text == expected), "{texts:?}");
        }
        assert!(
            !texts
                .iter()
                .any(|text| text.contains("lookup main") || text.contains("/0 in")),
            "{texts:?}"
        );
    }
}

#[test]
fn an_address_whose_network_holds_the_name_server_connects_nothing() {
    let held = Desired {
        servers: vec!["10.9.0.1".parse().unwrap()],
        ..desired(&["10.9.0.0/24"])
    };
    let plan = plan("wg0", &held, &facts(&[]), None, None);
    let bare = plan.iter().filter_map(|what| match what {
        What::Address {
            prefix, is_bare, ..
        } => Some((prefix.to_string(), *is_bare)),
        _ => None,
    });
    let expected = [
        ("10.9.0.2/24", true),
        ("10.8.0.2/32", false),
        ("fd09::2/64", false),
    ];
    assert!(bare.eq(expected.map(|(text, is_bare)| (text.to_owned(), is_bare))));
}

#[test]
fn a_pause_leaves_rules_of_the_tunnels_networks_only_and_a_barrier_if_the_kernel_ends_the_pause() {
    let mut desired = desired(&["0.0.0.0/0"]);
    let opening = Opening {
        seconds: 300,
        until: 1_800_000_000,
    };
    let paused = |desired: &Desired| plan("wg0", desired, &facts(&[]), None, Some(opening));
    let leads = |what: &What| {
        matches!(what, What::Dns(_) | What::Sysctl { .. })
            || matches!(what, What::Rule(rule) if !matches!(rule.selector, Selector::Networks { .. }))
    };
    let without = paused(&desired);
    assert!(
        !without
            .iter()
            .any(|it| leads(it) || matches!(it, What::Firewall(_)))
    );
    desired.kill_switch = Some(KillSwitch::default());
    let with = paused(&desired);
    assert!(!with.iter().any(leads));
    let barriers: Vec<_> = with.iter().filter(|it| it.is_kill_switch()).collect();
    let [What::Firewall(barrier)] = barriers[..] else {
        panic!("{barriers:?}");
    };
    for part in [
        "timeout 300s",
        "meta protocol @paused meta time < \"1800000000\" accept",
        "policy drop",
    ] {
        assert!(barrier.inet.contains(part), "{}", barrier.inet);
    }
}
