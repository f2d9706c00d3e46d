use convoy_netlink::RouteProtocol;

use super::*;
use crate::finding::Severity;

const MARK: u32 = 51_820;

/// Rules that every host has, and those that Convoy adds for a default route.
const KERNELS: [Rule; 3] = [rule(0, LOCAL_TABLE), rule(32_766, 254), rule(32_767, 253)];
const OURS: [Rule; 2] = [
    Rule {
        suppressed: Some(0),
        ..rule(32_764, 254)
    },
    Rule {
        mark: Some(MARK),
        is_inverted: true,
        ..rule(32_765, MARK)
    },
];

const fn rule(priority: u32, table: u32) -> Rule {
    Rule {
        ipv6: false,
        priority,
        table,
        mark: None,
        is_inverted: false,
        suppressed: None,
        protocol: RouteProtocol::Unspec,
        selects_more: false,
    }
}

const UP: Routing<'_> = Routing {
    name: Some("wg0"),
    mark: Some(MARK),
    has_default: [true, true],
};

fn severity(more: &[Rule]) -> Severity {
    let rules = [&KERNELS[..], &OURS, more].concat();
    let findings = judge_rules(&rules, &[], UP);
    findings
        .iter()
        .map(|finding| finding.severity)
        .max()
        .unwrap()
}

#[test]
fn a_rule_before_the_tunnels_is_told_and_one_behind_it_is_not() {
    assert_eq!(severity(&[]), Severity::Ok);
    assert_eq!(severity(&[rule(100, 7)]), Severity::Warning);
    assert_eq!(severity(&[rule(32_765, 7)]), Severity::Ok);
    // Another tunnel of wg-quick's that came up later.
    let wg_quick = Rule {
        mark: Some(7),
        is_inverted: true,
        ..rule(32_763, 7)
    };
    assert_eq!(severity(&[wg_quick]), Severity::Warning);
}

#[test]
fn rules_for_marked_packets_for_specific_routes_and_of_the_other_family_do_no_harm() {
    let marked = Rule {
        mark: Some(0x8_0000),
        ..rule(100, 254)
    };
    let specific = Rule {
        suppressed: Some(0),
        ..rule(100, 254)
    };
    let ipv6 = Rule {
        ipv6: true,
        ..rule(100, 7)
    };
    assert_eq!(severity(&[marked, specific, ipv6]), Severity::Ok);
}

#[test]
fn before_the_tunnel_is_up_other_rules_are_only_worth_knowing() {
    let none = Routing::default();
    assert_eq!(judge_rules(&KERNELS, &[], none)[0].severity, Severity::Ok);
    let rules = [&KERNELS[..], &[rule(100, 7)]].concat();
    assert_eq!(judge_rules(&rules, &[], none)[0].severity, Severity::Note);
}

/// Tailscale's own (`ip rule`, with its table 52).
const TAILSCALE: [Rule; 4] = [
    Rule {
        mark: Some(0x8_0000),
        ..rule(5_210, 254)
    },
    Rule {
        mark: Some(0x8_0000),
        ..rule(5_230, 253)
    },
    Rule {
        mark: Some(0x8_0000),
        ..rule(5_250, 0)
    },
    rule(5_270, 52),
];

fn tailscale(networks: &[&str]) -> Vec<Route> {
    let route = |text: &&str| Route::by_device(52, text.parse().unwrap(), 4);
    networks.iter().map(route).collect()
}

const TAILNET: [&str; 3] = ["100.100.100.100/32", "100.64.1.1/32", "192.0.2.0/24"];

#[test]
fn rules_of_tailscale_before_ours_take_its_own_networks_only_and_stay() {
    let rules = [&KERNELS[..], &OURS, &TAILSCALE].concat();
    let [finding] = &judge_rules(&rules, &tailscale(&TAILNET), UP)[..] else {
        panic!();
    };
    assert_eq!((finding.severity, &finding.fix), (Severity::Note, &None));
    assert!(
        finding.what.contains("100.100.100.100/32 and 2 more"),
        "{finding:?}"
    );
    assert_eq!(judge_tables(&rules, &tailscale(&TAILNET), UP, &[]), []);
    // With an exit node, both want all packets.
    let exit = tailscale(&["0.0.0.0/0"]);
    let [finding] = &judge_rules(&rules, &exit, UP)[..] else {
        panic!();
    };
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        !finding.fix.as_ref().unwrap().contains("delete"),
        "{finding:?}"
    );
}

#[test]
fn rules_of_tailscale_behind_ours_lose_their_networks_unless_these_are_excluded() {
    let mut ours = OURS;
    for (rule, priority) in ours.iter_mut().zip([5_208, 5_209]) {
        rule.priority = priority;
    }
    let rules = [&KERNELS[..], &ours, &TAILSCALE].concat();
    let routes = tailscale(&TAILNET);
    assert_eq!(judge_rules(&rules, &routes, UP)[0].severity, Severity::Ok);
    let down = Routing { mark: None, ..UP };
    for routing in [UP, down] {
        let [finding] = &judge_tables(&rules, &routes, routing, &[])[..] else {
            panic!();
        };
        let fix = finding.fix.as_ref().unwrap();
        assert!(
            fix.contains("`#convoy: ExcludedIPs = 100.64.0.0/10, 192.0.2.0/24`"),
            "{fix}"
        );
        let excluded = ["100.64.0.0/10", "192.0.2.0/24"].map(|it| it.parse().unwrap());
        assert_eq!(judge_tables(&rules, &routes, routing, &excluded), []);
    }
    let split = Routing {
        has_default: [false; 2],
        ..UP
    };
    assert_eq!(judge_tables(&rules, &routes, split, &[]), []);
}

fn links() -> Vec<Link> {
    let link = |index, name: &str, kind: &str| Link {
        index,
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_up: true,
        mtu: 1_420,
        queue: 500,
        ..Link::default()
    };
    vec![
        link(2, "eth0", ""),
        link(3, "wg0", "tun"),
        link(4, "tun0", "tun"),
    ]
}

#[test]
fn interfaces_of_other_vpns_are_told() {
    let finding = judge_links(&links(), &["wg0".to_owned()]);
    assert_eq!(finding.severity, Severity::Note);
    assert!(finding.what.contains("tun0 (tun)") && !finding.what.contains("wg0"));
    let mut links = links();
    links[2].is_up = false;
    assert_eq!(
        judge_links(&links, &["wg0".to_owned()]).severity,
        Severity::Ok
    );
}

#[test]
fn two_halves_of_a_default_route_come_before_it() {
    let to = |text: &str, device| Route::by_device(MAIN_TABLE, text.parse().unwrap(), device);
    let half = |device| to("0.0.0.0/1", device);
    let severity = |route, routing| judge_routes(&[route], &links(), routing).severity;
    assert_eq!(severity(half(4), UP), Severity::Warning);
    assert_eq!(severity(half(3), UP), Severity::Ok, "the tunnel's own");
    let default = to("0.0.0.0/0", 2);
    assert_eq!(severity(default, UP), Severity::Ok);
    let network = to("10.0.0.0/8", 4);
    assert_eq!(severity(network, UP), Severity::Ok);
    assert_eq!(severity(half(4), Routing::default()), Severity::Ok);
}

#[test]
fn a_manager_that_has_the_interface_is_told() {
    let name = "wg0".parse().unwrap();
    assert_eq!(judge_owner(&name, Signs::default()).severity, Severity::Ok);
    let signs = [
        Signs {
            has_network_manager: true,
            ..Signs::default()
        },
        Signs {
            has_networkd: true,
            ..Signs::default()
        },
    ];
    for signs in signs {
        assert_eq!(judge_owner(&name, signs).severity, Severity::Warning);
    }
}
