//! From the desired state to the changes that make it, without looking at the host.

use std::path::Path;

use crate::{
    change::What,
    desired::{Desired, Table},
    dns::Resolving,
    facts::Facts,
    firewall,
    netlink::{MAIN_TABLE, Route, Rule, Selector, Via},
    prefix::Prefix,
};

/// The changes, in the order in which nothing leaks.
///
/// While `paused`, the tunnel takes no default route and nothing is dropped.
pub(crate) fn plan(
    interface: &str,
    desired: &Desired,
    facts: &Facts,
    resolving: Option<Resolving>,
    paused: bool,
) -> Vec<What> {
    let index = facts.link.index;
    let is_usable = |prefix: &&Prefix| facts.has_ipv6 || !prefix.is_ipv6();
    let mut plan = Vec::new();
    if !paused {
        let ruleset = firewall::ruleset(interface, desired, &facts.allowed);
        plan.extend(ruleset.map(What::Firewall));
    }
    let addresses = desired.addresses.iter().filter(is_usable);
    plan.extend(addresses.map(|prefix| What::Address {
        index,
        prefix: *prefix,
    }));
    plan.push(What::Link {
        index,
        mtu: facts.mtu,
    });
    plan.extend(routes(desired, facts).into_iter().map(What::Route));
    if !paused {
        plan.extend(rules(desired, facts));
        plan.extend(resolving.map(What::Dns));
    }
    plan
}

fn routes(desired: &Desired, facts: &Facts) -> Vec<Route> {
    let device = Via::Device(facts.link.index);
    let excluded: Vec<_> = facts.allowed.excluded.iter().map(Prefix::network).collect();
    let mut allowed: Vec<_> = desired.allowed.iter().map(Prefix::network).collect();
    allowed.retain(|prefix| facts.has_ipv6 || !prefix.is_ipv6());
    // Longest first, as wg-quick(8) does.
    allowed.sort_by_key(|prefix| (std::cmp::Reverse(prefix.length()), *prefix));
    allowed.dedup();
    match desired.table {
        Table::Off => Vec::new(),
        Table::Number(table) => {
            let throws = thrown(&excluded, &allowed, table);
            let kept = allowed.iter().filter(|prefix| !excluded.contains(prefix));
            let kept = kept.map(|to| Route {
                table,
                to: *to,
                via: device,
            });
            throws.into_iter().chain(kept).collect()
        }
        Table::Auto => {
            let (defaults, others): (Vec<_>, Vec<_>) =
                allowed.into_iter().partition(Prefix::is_default);
            let mut routes = Vec::new();
            if let Some(table) = desired.fwmark {
                // First, so that nothing leaves by another default while the device is gone.
                routes.extend(defaults.iter().map(|to| Route {
                    table,
                    to: *to,
                    via: Via::Unreachable,
                }));
                routes.extend(thrown(&excluded, &defaults, table));
                routes.extend(defaults.iter().map(|to| Route {
                    table,
                    to: *to,
                    via: device,
                }));
            }
            let others = others.iter().flat_map(|prefix| prefix.without(&excluded));
            let uncovered = others.filter(|prefix| !is_connected(prefix, &desired.addresses));
            routes.extend(uncovered.map(|to| Route {
                table: MAIN_TABLE,
                to,
                via: device,
            }));
            routes
        }
    }
}

/// In a table that a rule selects, `throw` sends excluded networks on to the next rule.
fn thrown(excluded: &[Prefix], allowed: &[Prefix], table: u32) -> Vec<Route> {
    let is_inside = |hole: &&Prefix| allowed.iter().any(|prefix| prefix.contains(hole));
    let mut holes: Vec<_> = excluded.iter().filter(is_inside).copied().collect();
    holes.sort();
    holes.dedup();
    let throw = |to| Route {
        table,
        to,
        via: Via::Throw,
    };
    holes.into_iter().map(throw).collect()
}

/// Whether an address of the interface has already connected the network.
fn is_connected(network: &Prefix, addresses: &[Prefix]) -> bool {
    let mut nets = addresses.iter().filter(|a| a.is_ipv6() || !a.is_host());
    nets.any(|address| address.network().contains(network))
}

fn rules(desired: &Desired, facts: &Facts) -> Vec<What> {
    let mut rules = Vec::new();
    let Some(mark) = desired.fwmark else {
        return rules;
    };
    for ipv6 in [false, true] {
        if !desired.has_default(ipv6) || (ipv6 && !facts.has_ipv6) {
            continue;
        }
        if !ipv6 {
            rules.push(What::Sysctl {
                path: Path::new(VALID_MARK).to_owned(),
                value: "1".to_owned(),
            });
        }
        let before = facts.priorities[usize::from(ipv6)];
        let rule = |selector: Selector| {
            What::Rule(Rule {
                ipv6,
                priority: before.saturating_sub(selector.distance()).max(1),
                selector,
            })
        };
        rules.push(rule(Selector::AllButDefault));
        rules.push(rule(Selector::Unmarked { mark, table: mark }));
    }
    rules
}

/// Whether a plan ever has this file of `/proc/sys`.
pub(crate) fn is_ever_changed(path: &Path) -> bool {
    path == Path::new(VALID_MARK)
}

/// Makes the reverse path filter look at marks, too.
const VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";

#[cfg(test)]
mod tests;
