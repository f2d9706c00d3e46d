//! Other VPNs and managers of networks: their interfaces, rules and routes.

use std::fmt;

use convoy_config::InterfaceName;
use convoy_host::{Prefix, owner::Signs};

use super::{
    finding::Finding,
    netlink::{Link, MAIN_TABLE, Route, Rule},
};

/// Kinds of interfaces by which VPNs send packets. `ppp` and IPsec may be others, too.
pub(super) const VPN_KINDS: [&str; 6] = ["wireguard", "tun", "ovpn", "ppp", "xfrm", "vti"];

/// The kernel's own rules (ip-rule(8)).
const OWN_PRIORITIES: [u32; 3] = [0, 32_766, 32_767];
const LOCAL_TABLE: u32 = 255;

/// Longer prefixes do not stand in for a default route.
const SHORT: std::ops::RangeInclusive<u8> = 1..=7;

/// The ways of packets into a tunnel that others can block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Routing<'a> {
    /// The interface, if there is a tunnel.
    pub(super) name: Option<&'a str>,
    /// The mark of its datagrams and number of its table, once it is up.
    pub(super) mark: Option<u32>,
    /// Whether it takes all packets of IPv4 and of IPv6.
    pub(super) has_default: [bool; 2],
}

/// The names of other VPNs' interfaces that are up.
pub(super) fn vpns<'a>(links: &'a [Link], ours: &'a [String]) -> impl Iterator<Item = &'a Link> {
    let is_vpn = |link: &&Link| link.is_up && VPN_KINDS.contains(&link.kind.as_str());
    links
        .iter()
        .filter(is_vpn)
        .filter(|link| !ours.contains(&link.name))
}

/// Judges interfaces: which other VPNs are up.
pub(super) fn judge_links(links: &[Link], ours: &[String]) -> Finding {
    const ID: &str = "other-interfaces";
    let others: Vec<_> = vpns(links, ours)
        .map(|link| format!("{} ({})", link.name, link.kind))
        .collect();
    if others.is_empty() {
        return Finding::ok(ID, "No other VPN's interface is up.");
    }
    Finding::remark(
        ID,
        format!("Interfaces of other VPNs are up: {}.", others.join(", ")),
    )
}

/// Judges rules: those that take packets before the tunnel does.
pub(super) fn judge_rules(rules: &[Rule], routes: &[Route], routing: Routing<'_>) -> Vec<Finding> {
    const ID: &str = "other-rules";
    let mut findings = Vec::new();
    let (Some(name), Some(mark)) = (routing.name, routing.mark) else {
        return vec![rules_before_up(rules)];
    };
    for ours in rules.iter().filter(|rule| is_of_tunnel(rule, mark)) {
        let is_before = |rule: &&Rule| rule.ipv6 == ours.ipv6 && rule.priority < ours.priority;
        let others = rules
            .iter()
            .filter(is_before)
            .filter(|rule| takes_unmarked(rule));
        findings.extend(others.map(|rule| {
            let (family, priority) = (family(rule.ipv6), rule.priority);
            if let Some(networks) = Networks::of(rule, routes) {
                let what = format!(
                    "Rule {priority} of another program takes packets of IPv{family} to its own networks ({networks}) \
                     before {name} does; all others go into {name}."
                );
                return Finding::remark(ID, what);
            }
            Finding::warning(
                ID,
                format!("Rule {priority} of another program takes packets of IPv{family} before {name} does."),
                format!(
                    "Only one of the two can have all packets: see `ip -{family} rule`, then stop that program or its \
                     default route, or else take {name} down."
                ),
            )
        }));
    }
    if findings.is_empty() {
        let what = format!("No rule of another program takes packets before {name} does.");
        findings.push(Finding::ok(ID, what));
    }
    findings
}

fn rules_before_up(rules: &[Rule]) -> Finding {
    const ID: &str = "other-rules";
    let others = rules
        .iter()
        .filter(|rule| !OWN_PRIORITIES.contains(&rule.priority) && rule.table != LOCAL_TABLE);
    match others.count() {
        0 => Finding::ok(ID, "There are no rules but the kernel's."),
        count => Finding::remark(
            ID,
            format!(
                "There are {count} rules besides the kernel's; `convoy up` puts its own before them."
            ),
        ),
    }
}

/// Judges routes: those that stand in for a default route of another VPN.
pub(super) fn judge_routes(routes: &[Route], links: &[Link], routing: Routing<'_>) -> Finding {
    const ID: &str = "other-routes";
    let by = |route: &Route| links.iter().find(|link| Some(link.index) == route.device);
    let takes_ours = |route: &&Route| {
        route.table == MAIN_TABLE && routing.has_default[usize::from(route.to.is_ipv6())]
    };
    let short = routes
        .iter()
        .filter(|route| SHORT.contains(&route.to.length()));
    let mut devices = short
        .filter(takes_ours)
        .filter_map(by)
        .filter(|link| Some(link.name.as_str()) != routing.name);
    match devices.next() {
        None => Finding::ok(
            ID,
            "No route of another program stands in for a default route.",
        ),
        Some(Link { name, .. }) => Finding::warning(
            ID,
            format!(
                "Routes to half of all addresses, or less, lead out by {name} before the tunnel's default route."
            ),
            format!("Disconnect that VPN, or remove the routes: `ip route show dev {name}`."),
        ),
    }
}

/// Judges networks that other programs reach by tables of their own, which the tunnel takes first: its rules come before
/// theirs, or will.
pub(super) fn judge_tables(
    rules: &[Rule],
    routes: &[Route],
    routing: Routing<'_>,
    excluded: &[Prefix],
) -> Vec<Finding> {
    const ID: &str = "other-tables";
    let Some(name) = routing.name else {
        return Vec::new();
    };
    let is_taken = |rule: &&Rule| {
        let ours = rules.iter().find(|ours| {
            let is_ours = routing.mark.is_some_and(|mark| is_of_tunnel(ours, mark));
            is_ours && ours.ipv6 == rule.ipv6
        });
        let is_behind = ours.is_none_or(|ours| ours.priority < rule.priority);
        let is_other = !KERNELS_TABLES.contains(&rule.table) && Some(rule.table) != routing.mark;
        routing.has_default[usize::from(rule.ipv6)]
            && is_behind
            && is_other
            && takes_unmarked(rule)
            && !rule.is_inverted
    };
    let taken = rules.iter().filter(is_taken).filter_map(|rule| {
        let networks = Networks::of(rule, routes)?.without(excluded)?;
        let (family, priority) = (family(rule.ipv6), rule.priority);
        let what = format!(
            "Packets of IPv{family} to networks of another program ({networks}, by rule {priority}) go into {name}, \
             whose rules come first."
        );
        let fix = format!(
            "`#convoy: ExcludedIPs = {}` in the file of {name} leaves them to that program; leave its rules as they are.",
            networks.ranges()
        );
        Some(Finding::warning(ID, what, fix))
    });
    taken.collect()
}

/// Specific networks of another program's table.
struct Networks(Vec<Prefix>);

impl Networks {
    /// `None` if the table has a route for most addresses, or none at all.
    fn of(rule: &Rule, routes: &[Route]) -> Option<Self> {
        let of_table =
            |route: &&Route| route.table == rule.table && route.to.is_ipv6() == rule.ipv6;
        let routes: Vec<_> = routes.iter().filter(of_table).collect();
        let is_specific = |route: &&Route| route.to.length() > *SHORT.end();
        let networks = routes
            .iter()
            .filter(|route| is_specific(route))
            .map(|it| it.to);
        let are_specific = !routes.is_empty() && routes.iter().all(is_specific);
        are_specific.then(|| Self(networks.collect()))
    }

    /// The networks outside of `excluded`, if any.
    fn without(&self, excluded: &[Prefix]) -> Option<Self> {
        let is_left = |network: &&Prefix| !excluded.iter().any(|hole| hole.contains(network));
        let left: Vec<_> = self.0.iter().filter(is_left).copied().collect();
        (!left.is_empty()).then_some(Self(left))
    }

    /// The network to exclude: all of providers' NAT range, from which overlay networks take their addresses.
    fn ranges(&self) -> String {
        let overlays = OVERLAYS
            .iter()
            .filter_map(|range| range.parse::<Prefix>().ok());
        let overlays: Vec<_> = overlays.collect();
        let whole = |network: &Prefix| {
            let mut around = overlays.iter().filter(|range| range.contains(network));
            *around.next().unwrap_or(network)
        };
        let mut ranges: Vec<_> = self.0.iter().map(whole).collect();
        ranges.sort();
        ranges.dedup();
        let shown = ranges.iter().take(MAX_NAMED).map(ToString::to_string);
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Ranges of which Tailscale and others give each host an address.
const OVERLAYS: [&str; 2] = ["100.64.0.0/10", "fd7a:115c:a1e0::/48"];

/// The most networks that a message names.
const MAX_NAMED: usize = 8;

/// Unspecified, `default`, `main` and `local`.
const KERNELS_TABLES: [u32; 4] = [0, 253, MAIN_TABLE, LOCAL_TABLE];

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => Ok(()),
            [one] => write!(f, "{one}"),
            [first, rest @ ..] => write!(f, "{first} and {} more", rest.len()),
        }
    }
}

/// Judges who else manages the tunnel's interface.
pub(super) fn judge_owner(name: &InterfaceName, signs: Signs) -> Finding {
    const ID: &str = "owner";
    if signs.has_network_manager {
        return Finding::warning(
            ID,
            format!("NetworkManager manages {name}, too, and may undo what Convoy sets."),
            format!("`nmcli device set {name} managed no`"),
        );
    }
    if signs.has_networkd {
        return Finding::warning(
            ID,
            format!("systemd-networkd manages {name}, too, and may undo what Convoy sets."),
            format!(
                "Write a .network file that matches {name} with `Unmanaged=yes`, then `networkctl reload`."
            ),
        );
    }
    Finding::ok(ID, format!("No other program manages {name}."))
}

/// Returns whether it leads all packets but the tunnel's own datagrams into its table.
fn is_of_tunnel(rule: &Rule, mark: u32) -> bool {
    rule.is_inverted && rule.mark == Some(mark) && rule.table == mark
}

/// Returns whether it takes packets that bear no mark; a rule for specific routes only is one of Convoy or wg-quick.
fn takes_unmarked(rule: &Rule) -> bool {
    let has_no_mark = rule.mark.is_none() || rule.is_inverted;
    has_no_mark && rule.suppressed.is_none() && rule.table != LOCAL_TABLE
}

fn family(ipv6: bool) -> u8 {
    if ipv6 { 6 } else { 4 }
}

#[cfg(test)]
mod tests;
