//! Policy rules of ours, and their place among others.
//!
//! Our rules have `protocol kernel`: systemd-networkd removes foreign rules of any other protocol
//! (networkd.conf(5), `ManageForeignRoutingPolicyRules`).

use std::fmt;

use convoy_netlink::{
    self as netlink, LOCAL_TABLE, MAIN_TABLE, Netlink, NetlinkError, RouteProtocol,
};
use serde::{Deserialize, Serialize};

/// A rule of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) ipv6: bool,
    pub(crate) priority: u32,
    pub(crate) selector: Selector,
}

/// The packets that a rule selects, and their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Selector {
    /// Packets without the mark, into the table without its default routes.
    Networks { mark: u32, table: u32 },
    /// Packets without the mark, into the table.
    Unmarked { mark: u32, table: u32 },
    /// All packets, into the main table without its default routes.
    AllButDefault,
}

impl Selector {
    /// Returns how far it precedes others' rules.
    pub(crate) fn distance(&self) -> u32 {
        match self {
            Self::Unmarked { .. } => 1,
            Self::AllButDefault => 2,
            Self::Networks { .. } => 3,
        }
    }

    fn suppresses_default(&self) -> bool {
        !matches!(self, Self::Unmarked { .. })
    }
}

/// Where rules of ours go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The priority of others' first rule behind them.
    pub(crate) before: u32,
    /// The priority of the rule that finds the host's own addresses.
    pub(crate) after: u32,
}

impl Place {
    /// The priority of a rule. Where there are too few, several rules share one: the kernel keeps their order.
    pub(crate) fn priority(self, selector: Selector) -> u32 {
        let wanted = self.before.saturating_sub(selector.distance());
        wanted.max(self.after).max(1)
    }
}

/// Chooses the place for rules, of which there are `known` ones already: those stay, as two tunnels would overtake each
/// other for ever, unless the host would lose its own addresses.
fn choose(rules: &[netlink::Rule], known: &[Rule]) -> Place {
    let general = rules.iter().filter(|rule| is_general(rule));
    let local = general.clone().filter(|rule| rule.table == LOCAL_TABLE);
    let after = local.map(|rule| rule.priority).min().unwrap_or(0);
    let is_main = |rule: &&netlink::Rule| {
        rule.table == MAIN_TABLE && rule.suppressed.is_none() && rule.priority > after
    };
    let main = general.filter(is_main).map(|rule| rule.priority);
    // Of the table `main`, if somebody has removed all rules.
    let main = main.min().unwrap_or(32_766);
    let is_in_place = known.iter().all(|rule| rule.priority >= after.max(1));
    let ends = known
        .iter()
        .map(|rule| rule.priority + rule.selector.distance());
    let before = match ends.max().filter(|_| is_in_place) {
        Some(before) => before.min(main),
        None => {
            let priorities = rules.iter().map(|rule| rule.priority);
            let behind = priorities.filter(|priority| *priority > after);
            behind.min().unwrap_or(main)
        }
    };
    Place { before, after }
}

impl Rule {
    /// The mark that it looks for.
    pub(crate) fn mark(&self) -> Option<u32> {
        match self.selector {
            Selector::Unmarked { mark, .. } | Selector::Networks { mark, .. } => Some(mark),
            Selector::AllButDefault => None,
        }
    }

    fn table(&self) -> u32 {
        match self.selector {
            Selector::Unmarked { table, .. } | Selector::Networks { table, .. } => table,
            Selector::AllButDefault => MAIN_TABLE,
        }
    }

    fn for_kernel(&self) -> netlink::Rule {
        netlink::Rule {
            ipv6: self.ipv6,
            priority: self.priority,
            table: self.table(),
            mark: self.mark(),
            is_inverted: self.mark().is_some(),
            suppressed: self.selector.suppresses_default().then_some(0),
            protocol: RouteProtocol::Kernel,
            selects_more: false,
        }
    }

    /// Returns whether the kernel's rule is this one.
    fn is(&self, found: &netlink::Rule) -> bool {
        let found = netlink::Rule {
            // A rule of ours without a mark is known by the rest.
            mark: found.mark.filter(|_| self.mark().is_some()),
            selects_more: false,
            ..*found
        };
        found == self.for_kernel()
    }
}

/// Adds a rule.
pub(crate) async fn add(netlink: &Netlink, rule: &Rule) -> Result<(), NetlinkError> {
    netlink.add_rule(&rule.for_kernel()).await
}

/// Removes the rule by its priority and all its other attributes.
pub(crate) async fn remove(netlink: &Netlink, rule: &Rule) -> Result<(), NetlinkError> {
    netlink.remove_rule(&rule.for_kernel()).await?;
    // The kernel takes a rule that has a suppressor, too, for one without it, if they share their priority.
    match !rule.selector.suppresses_default() && exists(netlink, rule).await? {
        true => netlink.remove_rule(&rule.for_kernel()).await,
        false => Ok(()),
    }
}

/// Returns whether the kernel has the rule.
pub(crate) async fn exists(netlink: &Netlink, rule: &Rule) -> Result<bool, NetlinkError> {
    let found = netlink.rules(rule.ipv6).await?;
    Ok(found.iter().any(|found| rule.is(found)))
}

/// Chooses the place for rules of ours; `known` are those of this family that exist.
pub(crate) async fn place(
    netlink: &Netlink,
    ipv6: bool,
    known: &[Rule],
) -> Result<Place, NetlinkError> {
    Ok(choose(&netlink.rules(ipv6).await?, known))
}

/// Returns whether it selects all packets.
fn is_general(rule: &netlink::Rule) -> bool {
    !rule.is_inverted && rule.mark.is_none() && !rule.selects_more
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.ipv6 { "IPv6" } else { "IPv4" };
        write!(f, "{family} rule {}: ", self.priority)?;
        match self.selector {
            Selector::Unmarked { mark, table } => write!(f, "not fwmark {mark} lookup {table}"),
            Selector::AllButDefault => write!(f, "lookup main suppress_prefixlength 0"),
            Selector::Networks { mark, table } => {
                write!(
                    f,
                    "not fwmark {mark} lookup {table} suppress_prefixlength 0"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u32 = 51_820;

    fn to(table: u32, priority: u32) -> netlink::Rule {
        netlink::Rule {
            table,
            priority,
            ..netlink::Rule::default()
        }
    }

    fn ours(place: Place) -> [u32; 3] {
        let (mark, table) = (MARK, MARK);
        let all = [
            Selector::Networks { mark, table },
            Selector::AllButDefault,
            Selector::Unmarked { mark, table },
        ];
        all.map(|selector| place.priority(selector))
    }

    fn rule(priority: u32) -> Rule {
        let (mark, table) = (MARK, MARK);
        let selector = Selector::Unmarked { mark, table };
        Rule {
            ipv6: false,
            priority,
            selector,
        }
    }

    #[test]
    fn rules_go_behind_the_hosts_own_addresses_and_before_all_others() {
        let tailscale = [to(254, 5_210), to(52, 5_270)];
        for (local, others, expected) in [
            (0, &[][..], [32_763, 32_764, 32_765]),
            (100, &[], [32_763, 32_764, 32_765]),
            (0, &tailscale, [5_207, 5_208, 5_209]),
            (6_000, &tailscale, [32_763, 32_764, 32_765]),
            // Beside VRFs.
            (32_765, &[to(7, 1_000)], [32_765; 3]),
            (32_764, &[], [32_764, 32_764, 32_765]),
            (0, &[to(7, 1)], [1; 3]),
        ] {
            let rules = [&[to(LOCAL_TABLE, local), to(254, 32_766)], others].concat();
            let place = choose(&rules, &[]);
            assert_eq!(ours(place), expected, "local at {local}");
        }
        assert_eq!(ours(choose(&[], &[])), [32_763, 32_764, 32_765]);
    }

    #[test]
    fn a_rule_for_some_packets_does_not_find_the_hosts_own_addresses() {
        let some = netlink::Rule {
            selects_more: true,
            ..to(LOCAL_TABLE, 5)
        };
        let rules = [some, to(LOCAL_TABLE, 100), to(254, 32_766)];
        assert_eq!(choose(&rules, &[]).after, 100);
    }

    #[test]
    fn known_rules_stay_unless_the_host_would_lose_its_addresses() {
        let rules = [to(LOCAL_TABLE, 0), to(7, 50), to(254, 32_766)];
        assert_eq!(choose(&rules, &[rule(5_209)]).before, 5_210);
        let moved = [to(LOCAL_TABLE, 32_765), to(254, 32_766)];
        assert_eq!(ours(choose(&moved, &[rule(5_209)])), [32_765; 3]);
        assert_eq!(ours(choose(&moved, &[rule(32_765)])), [32_765; 3]);
    }
}
