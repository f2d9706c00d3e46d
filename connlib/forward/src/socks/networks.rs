//! The two sides of a proxy, and its rule.

use convoy_network::{Network, counters::Counters, waiting::Part};

/// The networks of clients and targets.
#[derive(Clone, Copy)]
pub(crate) struct Networks<'a> {
    pub(crate) near: &'a dyn Network,
    pub(crate) far: &'a dyn Network,
}

/// The rule's counters, and its memory of datagrams that wait.
#[derive(Clone, Copy)]
pub(crate) struct Rule<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) early: Part<'a>,
}
