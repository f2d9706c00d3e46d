//! Sets of contenders with the rows in which they are compared.

use serde::{Deserialize, Serialize};

use super::{Field, ROWS, Row};

/// A set of contenders with their rows, and a result file of its own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Set {
    /// WireGuard programs at both ends, and OpenVPN.
    #[default]
    Programs,
    /// Programs at the near end that need no root.
    Rootless,
    /// Gateways at the near end.
    Gateways,
}

pub(super) const OF_ROOTLESS: [&str; 20] = [
    "tcp-up",
    "tcp-down",
    "tcp-8-up",
    "tcp-8-down",
    "tcp-loss",
    "tcp-up-cpu",
    "tcp-down-cpu",
    "tcp-8-up-cpu",
    "tcp-up-syscalls",
    "tcp-down-syscalls",
    "tcp-8-up-syscalls",
    "tcp-up-memory",
    "tcp-8-up-memory",
    "udp-1200",
    "requests",
    "request-tcp-idle-p50",
    "request-tcp-idle-p99",
    "request-udp-idle-p50",
    "connections",
    "connections-16",
];

pub(super) const OF_GATEWAYS: [&str; 22] = [
    "tcp-up",
    "tcp-down",
    "tcp-8-up",
    "tcp-8-down",
    "tcp-up-cpu",
    "tcp-down-cpu",
    "tcp-8-up-cpu",
    "tcp-up-syscalls",
    "tcp-down-syscalls",
    "tcp-up-memory",
    "tcp-8-up-memory",
    "udp-1200",
    "udp-64",
    "requests",
    "connections",
    "connections-16",
    "flows-1000",
    "flows-1000-open",
    "flows-1000-memory",
    "flows-8000",
    "flows-8000-open",
    "flows-8000-memory",
];

impl Set {
    /// Its rows.
    pub(crate) fn rows(self) -> Vec<&'static Row> {
        match self {
            Self::Programs => ROWS
                .iter()
                .filter(|row| row.field != Field::OtherSets)
                .collect(),
            Self::Rootless => named(&OF_ROOTLESS),
            Self::Gateways => named(&OF_GATEWAYS),
        }
    }
}

fn named(names: &[&str]) -> Vec<&'static Row> {
    names.iter().filter_map(|name| Row::named(name)).collect()
}
