//! Other VPNs and managers of networks: their interfaces, rules and routes.

use convoy_config::InterfaceName;

use super::{
    finding::Finding,
    netlink::{Link, Route, Rule},
};
use crate::client::owner::Signs;

/// Kinds of interfaces by which VPNs send packets. `ppp` and IPsec may be others, too.
const VPN_KINDS: [&str; 6] = ["wireguard", "tun", "ovpn", "ppp", "xfrm", "vti"];

/// The kernel's own rules (ip-rule(8)).
const OWN_PRIORITIES: [u32; 3] = [0, 32_766, 32_767];
const LOCAL_TABLE: u32 = 255;

/// Longer prefixes do not stand in for a default route.
const SHORT: std::ops::RangeInclusive<u8> = 1..=7;

/// How a tunnel gets packets, as far as others can get in its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Routing<'a> {
    /// The interface, if there is a tunnel.
    pub(super) name: Option<&'a str>,
    /// The mark of its datagrams and number of its table, once it is up.
    pub(super) mark: Option<u32>,
    /// Whether it takes all packets of IPv4 and of IPv6.
    pub(super) has_default: [bool; 2],
}

/// Judges interfaces: which other VPNs are up.
pub(super) fn judge_links(links: &[Link], ours: &[String]) -> Finding {
    const ID: &str = "other-interfaces";
    let is_vpn = |link: &&Link| link.is_up && VPN_KINDS.contains(&link.kind.as_str());
    let is_other = |link: &&Link| !ours.contains(&link.name);
    let others = links.iter().filter(is_vpn).filter(is_other);
    let others: Vec<_> = others
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
pub(super) fn judge_rules(rules: &[Rule], routing: Routing<'_>) -> Vec<Finding> {
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
            Finding::warning(
                ID,
                format!("Rule {priority} of another program takes packets of IPv{family} before {name} does."),
                format!(
                    "See `ip -{family} rule`; stop that program or `ip -{family} rule delete priority {priority}`, \
                     or restart the tunnel, which puts its rules first."
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
        .filter(|rule| !OWN_PRIORITIES.contains(&rule.priority));
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
    let by = |route: &Route| links.iter().find(|link| link.index == route.device);
    let takes_ours = |route: &&Route| routing.has_default[usize::from(route.ipv6)];
    let short = routes.iter().filter(|route| SHORT.contains(&route.length));
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

/// Whether it leads all packets but the tunnel's own datagrams into its table.
fn is_of_tunnel(rule: &Rule, mark: u32) -> bool {
    rule.is_inverted && rule.mark == Some(mark) && rule.table == mark
}

/// Whether it takes packets that bear no mark; a rule for specific routes only is one of Convoy or wg-quick.
fn takes_unmarked(rule: &Rule) -> bool {
    let has_no_mark = rule.mark.is_none() || rule.is_inverted;
    has_no_mark && !rule.is_suppressing && rule.table != LOCAL_TABLE
}

fn family(ipv6: bool) -> u8 {
    if ipv6 { 6 } else { 4 }
}

#[cfg(test)]
mod tests;
