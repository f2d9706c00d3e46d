//! Errors of the network outside about a flow's datagrams, and what the peer hears of them.

use crate::{counters::Refusal, stack::icmp::Unreachable};

pub(super) use crate::network::errors::{ask_for, forget_details, ready};

/// Returns the error that a router would send in place of this refusal.
pub(super) fn unreachable(refusal: Refusal) -> Option<Unreachable> {
    match refusal {
        Refusal::TargetRefused => Some(Unreachable::Port),
        Refusal::Unreachable | Refusal::TimedOut | Refusal::NoSource => Some(Unreachable::Host),
        _ => None,
    }
}
