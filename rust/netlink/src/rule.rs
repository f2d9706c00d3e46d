//! Policy rules.
//!
//! Our rules have `protocol kernel`: systemd-networkd removes foreign rules of any other protocol
//! (networkd.conf(5), `ManageForeignRoutingPolicyRules`).

use std::{fmt, io};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};
use serde::{Deserialize, Serialize};

use crate::{MAIN_TABLE, Netlink};

/// The table `local`.
const LOCAL_TABLE: u32 = 255;

/// A rule of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    pub ipv6: bool,
    pub priority: u32,
    pub selector: Selector,
}

/// The packets that a rule selects, and their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// Packets without the mark, into the table without its default routes.
    Networks { mark: u32, table: u32 },
    /// Packets without the mark, into the table.
    Unmarked { mark: u32, table: u32 },
    /// All packets, into the main table without its default routes.
    AllButDefault,
}

impl Selector {
    /// How far before others' rules it goes.
    pub fn distance(&self) -> u32 {
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
pub struct Place {
    /// The priority of others' first rule behind them.
    pub before: u32,
    /// The priority of the rule that finds the host's own addresses.
    pub after: u32,
}

impl Place {
    /// The priority of a rule. Where there are too few, several rules share one: the kernel keeps their order.
    pub fn priority(self, selector: Selector) -> u32 {
        let wanted = self.before.saturating_sub(selector.distance());
        wanted.max(self.after).max(1)
    }
}

/// Chooses the place for rules, of which there are `known` ones already: those stay, as two tunnels would overtake each
/// other for ever, unless the host would lose its own addresses.
fn place(rules: &[RuleMessage], known: &[Rule]) -> Place {
    let local = rules
        .iter()
        .filter(|rule| is_general(rule) && table(rule) == LOCAL_TABLE);
    let after = local.map(priority).min().unwrap_or(0);
    let behind = rules.iter().filter(|rule| priority(rule) > after);
    let main = behind
        .clone()
        .filter(|rule| is_general(rule) && table(rule) == MAIN_TABLE && !suppresses(rule));
    // Of the table `main`, if somebody has removed all rules.
    let main = main.map(priority).min().unwrap_or(32_766);
    let is_in_place = known.iter().all(|rule| rule.priority >= after.max(1));
    let ends = known
        .iter()
        .map(|rule| rule.priority + rule.selector.distance());
    let before = match ends.max().filter(|_| is_in_place) {
        Some(before) => before.min(main),
        None => behind.map(priority).min().unwrap_or(main),
    };
    Place { before, after }
}

impl Rule {
    /// The mark that it looks for.
    pub fn mark(&self) -> Option<u32> {
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

    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(self.ipv6);
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Table(self.table()),
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Protocol(RouteProtocol::Kernel),
        ];
        if let Some(mark) = self.mark() {
            message.header.flags = RuleFlags::Invert;
            message.attributes.push(RuleAttribute::FwMark(mark));
        }
        if self.selector.suppresses_default() {
            message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
        }
        message
    }

    /// Whether the kernel's rule is this one.
    fn is(&self, message: &RuleMessage) -> bool {
        let wanted = self.message();
        let has = |attribute: &RuleAttribute| message.attributes.contains(attribute);
        message.header.family == wanted.header.family
            && message.header.action == wanted.header.action
            && message.header.flags.contains(RuleFlags::Invert)
                == wanted.header.flags.contains(RuleFlags::Invert)
            && suppresses(message) == self.selector.suppresses_default()
            && wanted.attributes.iter().all(has)
    }
}

impl Netlink {
    pub async fn add_rule(&self, rule: &Rule) -> io::Result<()> {
        self.add(RouteNetlinkMessage::NewRule(rule.message())).await
    }

    /// Removes the rule by its priority and all its other attributes.
    pub async fn remove_rule(&self, rule: &Rule) -> io::Result<()> {
        self.change(RouteNetlinkMessage::DelRule(rule.message()))
            .await?;
        // The kernel takes a rule that has a suppressor, too, for one without it, if they share their priority.
        match !rule.selector.suppresses_default() && self.has_rule(rule).await? {
            true => {
                self.change(RouteNetlinkMessage::DelRule(rule.message()))
                    .await
            }
            false => Ok(()),
        }
    }

    pub async fn has_rule(&self, rule: &Rule) -> io::Result<bool> {
        let found = self.rules(rule.ipv6).await?;
        Ok(found.iter().any(|message| rule.is(message)))
    }

    /// The place for rules of ours; `known` are those of this family that exist.
    pub async fn place(&self, ipv6: bool, known: &[Rule]) -> io::Result<Place> {
        Ok(place(&self.rules(ipv6).await?, known))
    }

    async fn rules(&self, ipv6: bool) -> io::Result<Vec<RuleMessage>> {
        let mut message = RuleMessage::default();
        message.header.family = family(ipv6);
        let found = self.dump(RouteNetlinkMessage::GetRule(message)).await?;
        let rules = found.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRule(message) => Some(message),
            _ => None,
        });
        Ok(rules.collect())
    }
}

/// Whether it selects all packets and looks them up in a table.
fn is_general(rule: &RuleMessage) -> bool {
    let selects = |a: &RuleAttribute| {
        matches!(
            a,
            RuleAttribute::Destination(_)
                | RuleAttribute::Source(_)
                | RuleAttribute::Iifname(_)
                | RuleAttribute::Oifname(_)
                | RuleAttribute::FwMark(_)
                | RuleAttribute::UidRange(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_)
        )
    };
    rule.header.action == RuleAction::ToTable
        && !rule.header.flags.contains(RuleFlags::Invert)
        && !rule.attributes.iter().any(selects)
}

fn table(rule: &RuleMessage) -> u32 {
    let table = rule.attributes.iter().find_map(|a| match a {
        RuleAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(rule.header.table.into())
}

fn priority(rule: &RuleMessage) -> u32 {
    let priority = rule.attributes.iter().find_map(|a| match a {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    });
    // The kernel tells none for the first one.
    priority.unwrap_or(0)
}

/// Whether it ignores some routes of its table; the kernel tells -1 for none.
fn suppresses(rule: &RuleMessage) -> bool {
    let is_suppressor = |a: &RuleAttribute| matches!(a, RuleAttribute::SuppressPrefixLen(length) if *length != u32::MAX);
    rule.attributes.iter().any(is_suppressor)
}

fn family(ipv6: bool) -> AddressFamily {
    if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
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

    fn to(table: u32, priority: u32) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Table(table),
            RuleAttribute::Priority(priority),
        ];
        message
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
            let place = place(&rules, &[]);
            assert_eq!(ours(place), expected, "local at {local}");
        }
        assert_eq!(ours(place(&[], &[])), [32_763, 32_764, 32_765]);
    }

    #[test]
    fn a_rule_for_some_packets_does_not_find_the_hosts_own_addresses() {
        let mut some = to(LOCAL_TABLE, 5);
        some.attributes
            .push(RuleAttribute::Iifname("eth0".to_owned()));
        let rules = [some, to(LOCAL_TABLE, 100), to(254, 32_766)];
        assert_eq!(place(&rules, &[]).after, 100);
    }

    #[test]
    fn known_rules_stay_unless_the_host_would_lose_its_addresses() {
        let rules = [to(LOCAL_TABLE, 0), to(7, 50), to(254, 32_766)];
        assert_eq!(place(&rules, &[rule(5_209)]).before, 5_210);
        let moved = [to(LOCAL_TABLE, 32_765), to(254, 32_766)];
        assert_eq!(ours(place(&moved, &[rule(5_209)])), [32_765; 3]);
        assert_eq!(ours(place(&moved, &[rule(32_765)])), [32_765; 3]);
    }
}
