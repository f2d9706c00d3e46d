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

use super::{MAIN_TABLE, Netlink};

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
    /// Packets without the mark, into the table.
    Unmarked { mark: u32, table: u32 },
    /// All packets, into the main table without its default routes.
    AllButDefault,
}

impl Selector {
    /// How far before others' rules it goes.
    pub(crate) fn distance(&self) -> u32 {
        match self {
            Self::Unmarked { .. } => 1,
            Self::AllButDefault => 2,
        }
    }
}

impl Rule {
    /// The mark that it looks for.
    pub(crate) fn mark(&self) -> Option<u32> {
        match self.selector {
            Selector::Unmarked { mark, .. } => Some(mark),
            Selector::AllButDefault => None,
        }
    }

    fn table(&self) -> u32 {
        match self.selector {
            Selector::Unmarked { table, .. } => table,
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
        match self.selector {
            Selector::Unmarked { mark, .. } => {
                message.header.flags = RuleFlags::Invert;
                message.attributes.push(RuleAttribute::FwMark(mark));
            }
            Selector::AllButDefault => message.attributes.push(RuleAttribute::SuppressPrefixLen(0)),
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
            && wanted.attributes.iter().all(has)
    }
}

impl Netlink {
    pub(crate) async fn add_rule(&self, rule: &Rule) -> io::Result<()> {
        self.add(RouteNetlinkMessage::NewRule(rule.message())).await
    }

    /// Removes the rule by its priority and all its other attributes.
    pub(crate) async fn remove_rule(&self, rule: &Rule) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRule(rule.message());
        self.change(message).await
    }

    pub(crate) async fn has_rule(&self, rule: &Rule) -> io::Result<bool> {
        let found = self.rules(rule.ipv6).await?;
        Ok(found.iter().any(|message| rule.is(message)))
    }

    /// The lowest priority of a rule, apart from the first one: the kernel puts a new rule before it.
    pub(crate) async fn lowest_priority(&self, ipv6: bool) -> io::Result<u32> {
        let found = self.rules(ipv6).await?;
        let priorities = found.iter().filter_map(|message| {
            message.attributes.iter().find_map(|a| match a {
                RuleAttribute::Priority(priority) => Some(*priority),
                _ => None,
            })
        });
        // Of the table `main`, if somebody has removed all rules.
        Ok(priorities.filter(|p| *p > 0).min().unwrap_or(32_766))
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
        }
    }
}
