use super::*;
use crate::{
    desired::{Dns, KillSwitch},
    firewall::Allowed,
    netlink::Link,
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
            is_up: false,
            has_carrier: false,
        },
        has_ipv6: true,
        mtu: 1420,
        priorities: [32766, 5210],
        allowed: Allowed {
            excluded: prefixes(excluded),
            ..Allowed::default()
        },
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
    let plan = plan("wg0", desired, facts, None, false);
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
        "/proc/sys/net/ipv4/conf/all/src_valid_mark",
        "IPv4 rule 32764: lookup main suppress_prefixlength 0",
        "IPv4 rule 32765: not fwmark 51820 lookup 51820",
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
    facts.has_ipv6 = false;
    let texts = texts(&desired(&["0.0.0.0/0", "::/0"]), &facts);
    let is_ipv6 = |text: &&String| text.contains("::") || text.contains("IPv6");
    assert_eq!(texts.iter().find(is_ipv6), None);
}

#[test]
fn a_pause_leaves_neither_barrier_nor_rules() {
    let mut desired = desired(&["0.0.0.0/0"]);
    desired.kill_switch = Some(KillSwitch::default());
    let plan = plan("wg0", &desired, &facts(&[]), None, true);
    let is_closed = |what: &What| {
        matches!(
            what,
            What::Firewall(_) | What::Rule(_) | What::Dns(_) | What::Sysctl { .. }
        )
    };
    assert!(!plan.iter().any(is_closed));
}
