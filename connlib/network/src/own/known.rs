//! Local addresses.

use std::{collections::HashSet, net::IpAddr};

use convoy_types::Prefix;

/// Local addresses, and networks all of whose addresses are.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) addresses: HashSet<IpAddr>,
    pub(super) networks: Vec<Prefix>,
    /// Number of changes.
    pub(super) version: u64,
}
