//! Policy rules.

use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    route::RouteProtocol,
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};

use crate::{Netlink, connection::family, error::NetlinkError};

/// A policy rule, as the kernel has it or is to have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Whether it is for IPv6.
    pub ipv6: bool,
    /// Its place among rules; the lowest comes first.
    pub priority: u32,
    /// Number of the table that it leads to; 0 if it leads to none.
    pub table: u32,
    /// Packets with this mark, or without it if the rule is inverted.
    pub mark: Option<u32>,
    /// Whether it is for all packets but those that it selects.
    pub is_inverted: bool,
    /// Length of the longest prefixes in the table that it ignores (`suppress_prefixlength`).
    pub suppressed: Option<u32>,
    /// The program that made it.
    pub protocol: RouteProtocol,
    /// Whether it selects packets by more than a mark. Not written.
    pub selects_more: bool,
}

impl Netlink {
    /// Lists the rules of a family in the order in which the kernel takes them; none if it lacks the family.
    pub async fn rules(&self, ipv6: bool) -> Result<Vec<Rule>, NetlinkError> {
        let mut message = RuleMessage::default();
        message.header.family = family(ipv6);
        let found = self.dump(RouteNetlinkMessage::GetRule(message)).await;
        let found = found.map_err(NetlinkError::on("list", "rules"))?;
        let rules = found.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRule(message) => Some(Rule::parse(message, ipv6)),
            _ => None,
        });
        Ok(rules.collect())
    }

    /// Adds a rule.
    pub async fn add_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        self.new_rule(rule, rule.message()).await
    }

    /// Adds a rule for the packets that it selects among those that come by an interface.
    pub async fn add_rule_from(&self, rule: &Rule, interface: &str) -> Result<(), NetlinkError> {
        let mut message = rule.message();
        let from = RuleAttribute::Iifname(interface.to_owned());
        message.attributes.push(from);
        self.new_rule(rule, message).await
    }

    async fn new_rule(&self, rule: &Rule, message: RuleMessage) -> Result<(), NetlinkError> {
        let added = self.add(RouteNetlinkMessage::NewRule(message)).await;
        let priority = rule.priority;
        added.map_err(NetlinkError::on("add", format_args!("rule {priority}")))
    }

    /// Removes a rule by its priority and all its other attributes.
    pub async fn remove_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRule(rule.message());
        let priority = rule.priority;
        let removed = self.change(message).await;
        removed.map_err(NetlinkError::on("remove", format_args!("rule {priority}")))
    }
}

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(self.ipv6);
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Table(self.table),
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Protocol(self.protocol),
        ];
        if self.is_inverted {
            message.header.flags = RuleFlags::Invert;
        }
        let mark = self.mark.map(RuleAttribute::FwMark);
        let suppressed = self.suppressed.map(RuleAttribute::SuppressPrefixLen);
        message
            .attributes
            .extend(mark.into_iter().chain(suppressed));
        message
    }

    fn parse(message: &RuleMessage, ipv6: bool) -> Self {
        let mut rule = Self {
            ipv6,
            table: message.header.table.into(),
            is_inverted: message.header.flags.contains(RuleFlags::Invert),
            ..Self::default()
        };
        for attribute in &message.attributes {
            match attribute {
                // The kernel tells none for the first one.
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
                RuleAttribute::Protocol(protocol) => rule.protocol = *protocol,
                // The kernel tells -1 for none.
                RuleAttribute::SuppressPrefixLen(length) => {
                    rule.suppressed = Some(*length).filter(|it| *it != u32::MAX);
                }
                RuleAttribute::Destination(_)
                | RuleAttribute::Source(_)
                | RuleAttribute::Iifname(_)
                | RuleAttribute::Oifname(_)
                | RuleAttribute::UidRange(_)
                | RuleAttribute::IpProtocol(_)
                | RuleAttribute::SourcePortRange(_)
                | RuleAttribute::DestinationPortRange(_) => rule.selects_more = true,
                _ => {}
            }
        }
        if message.header.action != RuleAction::ToTable {
            rule.table = 0;
        }
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_survives_its_message() {
        let plain = Rule {
            priority: 5,
            table: 1_000,
            ..Rule::default()
        };
        let inverted = Rule {
            ipv6: true,
            mark: Some(51_820),
            is_inverted: true,
            suppressed: Some(0),
            protocol: RouteProtocol::Kernel,
            ..plain
        };
        for rule in [plain, inverted] {
            assert_eq!(Rule::parse(&rule.message(), rule.ipv6), rule);
        }
    }

    #[test]
    fn the_kernels_words_for_none_are_understood() {
        let mut message = RuleMessage::default();
        message.header.action = RuleAction::Blackhole;
        message.attributes = vec![
            RuleAttribute::Table(7),
            RuleAttribute::SuppressPrefixLen(u32::MAX),
            RuleAttribute::Iifname("eth0".to_owned()),
        ];
        let expected = Rule {
            selects_more: true,
            ..Rule::default()
        };
        assert_eq!(Rule::parse(&message, false), expected);
    }
}
