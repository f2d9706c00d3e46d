//! From the desired state to the changes that make it, without looking at the host.

use std::path::Path;

use convoy_netlink::MAIN_TABLE;
use convoy_types::Prefix;

use crate::{
    change::{VALID_MARK, What},
    desired::{Desired, Table, smallest_mtu},
    dns::Resolving,
    facts::{Facts, Ipv6},
    firewall::{self, Opening},
    route::{Route, Via},
    rule::{Rule, Selector},
};

/// The changes, in the order in which nothing leaks.
///
/// In a pause, the tunnel takes no default route, and a kill switch drops nothing for as long as the kernel lets it.
pub(crate) fn plan(
    interface: &str,
    desired: &Desired,
    facts: &Facts,
    resolving: Option<Resolving>,
    pause: Option<Opening>,
) -> Vec<What> {
    let index = facts.link.index;
    let is_usable = |prefix: &&Prefix| facts.ipv6 == Ipv6::On || !prefix.is_ipv6();
    let mut plan = Vec::new();
    let paused = pause.is_some();
    if !paused || desired.kill_switch.is_some() {
        let ruleset = firewall::ruleset(interface, desired, &facts.allowed, pause);
        plan.extend(ruleset.map(What::Firewall));
    }
    let link = What::Link {
        index,
        mtu: facts.mtu,
    };
    let addresses = desired.addresses.iter().filter(is_usable);
    let addresses = addresses.map(|prefix| What::Address {
        index,
        prefix: *prefix,
        is_bare: desired.connects_outside(prefix),
    });
    // A link that is too narrow for IPv6 takes no IPv6 address before it is wider.
    let is_narrow = facts.link.mtu < smallest_mtu(true);
    plan.extend(is_narrow.then(|| link.clone()));
    plan.extend(addresses);
    plan.extend((!is_narrow).then_some(link));
    plan.extend(routes(desired, facts).into_iter().map(What::Route));
    plan.extend(rules(desired, facts, paused));
    if !paused {
        plan.extend(resolving.map(What::Dns));
    }
    plan
}

fn routes(desired: &Desired, facts: &Facts) -> Vec<Route> {
    let excluded: Vec<_> = facts.allowed.excluded.iter().map(Prefix::network).collect();
    let mut allowed: Vec<_> = desired.allowed.iter().map(Prefix::network).collect();
    allowed.retain(|prefix| facts.ipv6 != Ipv6::Absent || !prefix.is_ipv6());
    // Longest first, as wg-quick(8) does.
    allowed.sort_by_key(|prefix| (std::cmp::Reverse(prefix.length()), *prefix));
    allowed.dedup();
    match (desired.table, desired.fwmark) {
        (Table::Off, _) => Vec::new(),
        (Table::Number(table), _) => {
            let throws = thrown(&excluded, &allowed, table);
            let kept = allowed.iter().filter(|prefix| !excluded.contains(prefix));
            throws
                .into_iter()
                .chain(kept.map(|to| into(facts, *to, table)))
                .collect()
        }
        (Table::Auto, Some(table)) if desired.is_fenced() => {
            fenced(desired, facts, &excluded, table)
        }
        (Table::Auto, _) => {
            allowed.retain(|prefix| !prefix.is_default());
            in_main(desired, facts, &excluded, &allowed)
        }
    }
}

fn in_main(
    desired: &Desired,
    facts: &Facts,
    excluded: &[Prefix],
    networks: &[Prefix],
) -> Vec<Route> {
    let parts = networks.iter().flat_map(|prefix| prefix.without(excluded));
    let uncovered = parts
        .filter(|prefix| facts.cannot_carry(prefix) || !is_connected(prefix, &desired.addresses));
    uncovered.map(|to| into(facts, to, MAIN_TABLE)).collect()
}

/// All routes, in a table of the tunnel's own; those that keep none of its datagrams inside in the main table, too,
/// where other programs look for networks that are in use.
fn fenced(desired: &Desired, facts: &Facts, excluded: &[Prefix], table: u32) -> Vec<Route> {
    let is_possible = |prefix: &Prefix| facts.ipv6 != Ipv6::Absent || !prefix.is_ipv6();
    let defaults = [false, true]
        .into_iter()
        .filter(|ipv6| desired.has_default(*ipv6));
    let mut defaults: Vec<_> = defaults.map(Prefix::default_of).collect();
    defaults.retain(is_possible);
    let fences = [false, true].map(|ipv6| desired.fences(ipv6));
    let is_fenced = |prefix: &Prefix| fences[usize::from(prefix.is_ipv6())];
    let mut networks = desired.networks();
    networks.retain(is_possible);
    let (mut networks, plain): (Vec<_>, Vec<_>) = networks.into_iter().partition(is_fenced);
    // First, so that nothing leaves by another default while the device is gone.
    let closed = defaults.iter().map(|to| Route {
        table,
        to: *to,
        via: Via::Unreachable,
    });
    let mut routes: Vec<_> = closed.collect();
    let holes = [excluded, &facts.nearer].concat();
    let around = [&defaults[..], &networks].concat();
    let throws = thrown(&holes, &around, table);
    routes.extend(
        throws
            .into_iter()
            .filter(|hole| !networks.contains(&hole.to)),
    );
    let open = defaults.iter().filter(|to| !facts.cannot_carry(to));
    let open = open.chain(&networks);
    routes.extend(open.map(|to| into(facts, *to, table)));
    let holders = desired.holders(&networks);
    networks.retain(|network| !facts.cannot_carry(network) && !holders.contains(network));
    networks.extend(plain);
    routes.extend(in_main(desired, facts, excluded, &networks));
    routes
}

/// The route into the tunnel; to nowhere, if that cannot carry it.
fn into(facts: &Facts, to: Prefix, table: u32) -> Route {
    let via = match facts.cannot_carry(&to) {
        true => Via::Unreachable,
        false => Via::Device(facts.link.index),
    };
    Route { table, to, via }
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

/// Returns whether an address of the interface has already connected the network.
fn is_connected(network: &Prefix, addresses: &[Prefix]) -> bool {
    let mut nets = addresses.iter().filter(|a| a.is_ipv6() || !a.is_host());
    nets.any(|address| address.network().contains(network))
}

/// A pause leaves the tunnel its networks.
fn rules(desired: &Desired, facts: &Facts, paused: bool) -> Vec<What> {
    let mut rules = Vec::new();
    let Some(mark) = desired.fwmark.filter(|_| desired.is_fenced()) else {
        return rules;
    };
    let networks = desired.networks();
    for ipv6 in [false, true] {
        let has_default = desired.has_default(ipv6) && !paused;
        let has_networks = desired.fences(ipv6) && networks.iter().any(|it| it.is_ipv6() == ipv6);
        if !(has_default || has_networks) || (ipv6 && facts.ipv6 == Ipv6::Absent) {
            continue;
        }
        if !ipv6 && !paused {
            rules.push(What::Sysctl {
                path: Path::new(VALID_MARK).to_owned(),
                value: "1".to_owned(),
            });
        }
        let place = facts.places[usize::from(ipv6)];
        let rule = |selector: Selector| {
            What::Rule(Rule {
                ipv6,
                priority: place.priority(selector),
                selector,
            })
        };
        let table = mark;
        rules.extend(has_networks.then(|| rule(Selector::Networks { mark, table })));
        if has_default {
            rules.push(rule(Selector::AllButDefault));
            rules.push(rule(Selector::Unmarked { mark, table }));
        }
    }
    rules
}

#[cfg(test)]
mod tests;
