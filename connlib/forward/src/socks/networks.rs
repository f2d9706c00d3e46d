//! The two sides of a proxy, and its rule.

use std::sync::Arc;

use convoy_network::{
    Network,
    counters::Counters,
    expiry::Expiry,
    occupants::{Holder, Occupant, Occupants},
    waiting::Part,
};

use super::targets::TargetCount;

/// The networks of clients and targets.
#[derive(Clone, Copy)]
pub(crate) struct Networks<'a> {
    pub(crate) near: &'a dyn Network,
    pub(crate) far: &'a dyn Network,
}

/// The rule's counters, its memory of datagrams that wait, and the flows of its client.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) early: Part<'a>,
    pub(crate) flows: Flows<'a>,
}

/// The flows of all rules, as one client begins another: each association is one.
#[derive(Clone, Copy)]
pub(crate) struct Flows<'a> {
    pub(crate) all: &'a Occupants,
    pub(crate) client: Holder,
    pub(crate) most: usize,
    /// The targets of all associations.
    pub(crate) targets: &'a TargetCount,
}

impl Flows<'_> {
    /// Adds an association; another flow gives way if need be.
    pub(crate) fn admit(self, association: &Arc<Expiry>) -> Option<Occupant> {
        self.all.admit(self.client, association, self.most)
    }
}
