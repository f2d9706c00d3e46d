//! The changes that this crate makes, as the journal keeps them.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use convoy_types::Prefix;
use serde::{Deserialize, Serialize};

use crate::{dns::Resolving, firewall::Ruleset, route::Route, rule::Rule};

/// A change and the state before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) what: What,
    pub(crate) before: Before,
}

/// One piece of the host's state, as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// The nftables tables of the interface.
    Firewall(Ruleset),
    /// The link is up with this MTU.
    Link { index: u32, mtu: u32 },
    /// An address of the link.
    Address {
        index: u32,
        prefix: Prefix,
        /// Without a route to its network.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_bare: bool,
    },
    /// A route.
    Route(Route),
    /// A policy rule.
    Rule(Rule),
    /// The content of a file in `/proc/sys`.
    Sysctl { path: PathBuf, value: String },
    /// Name servers.
    Dns(Resolving),
}

/// The state before a change, as far as undoing it requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Before {
    /// It did not exist.
    Absent,
    /// The link's MTU in bytes, and whether it was up.
    Link { mtu: u32, up: bool },
    /// The file's content.
    Content(String),
    /// The original resolv.conf.
    ResolvConf(crate::dns::Original),
}

impl What {
    /// Identifies the object of a change: equal for two states of which one replaces the other.
    pub(crate) fn slot(&self) -> Self {
        match self.clone() {
            Self::Firewall(ruleset) => Self::Firewall(ruleset.slot()),
            Self::Link { index, .. } => Self::Link { index, mtu: 0 },
            Self::Sysctl { path, .. } => Self::Sysctl {
                path,
                value: String::new(),
            },
            Self::Dns(resolving) => Self::Dns(resolving.slot()),
            whole => whole,
        }
    }

    /// Returns whether it is a kill switch.
    pub(crate) fn is_kill_switch(&self) -> bool {
        matches!(self, Self::Firewall(ruleset) if ruleset.is_kill_switch)
    }

    /// Returns whether this and its former state are kill switches that stay equally long, so that the record of one
    /// serves for the other.
    pub(crate) fn stays_like(&self, former: &Self) -> bool {
        match (self, former) {
            (Self::Firewall(new), Self::Firewall(former)) => {
                let are_kill_switches = new.is_kill_switch && former.is_kill_switch;
                are_kill_switches && new.is_persistent == former.is_persistent
            }
            _ => false,
        }
    }

    /// Returns whether it survives a reboot, so that its record must as well.
    pub(crate) fn survives_reboot(&self) -> bool {
        matches!(self, Self::Dns(Resolving::File { .. }))
    }

    /// Returns whether it must stay until its successor is in place, because packets would leave the tunnel
    /// without it.
    pub(crate) fn guards(&self) -> bool {
        match self {
            Self::Firewall(_) | Self::Rule(_) => true,
            Self::Route(route) => route.guards(),
            _ => false,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Firewall(ruleset) => write!(f, "nftables table {}", ruleset.table),
            Self::Link { mtu, .. } => write!(f, "link up, MTU {mtu}"),
            Self::Address { prefix, .. } => write!(f, "address {prefix}"),
            Self::Route(route) => write!(f, "{route}"),
            Self::Rule(rule) => write!(f, "{rule}"),
            Self::Sysctl { path, .. } => write!(f, "{}", path.display()),
            Self::Dns(resolving) => write!(f, "{resolving}"),
        }
    }
}

/// Returns whether any plan includes this file of `/proc/sys`.
pub(crate) fn is_ever_changed(path: &Path) -> bool {
    path == Path::new(VALID_MARK)
}

/// Makes the reverse path filter consider marks.
pub(crate) const VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";
