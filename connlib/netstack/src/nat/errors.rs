//! What the network outside says about a flow's datagrams, and what the peer hears of it.

use crate::{counters::Refusal, stack::icmp::Unreachable};

pub(super) use crate::network::errors::{ask_for, forget_details, ready};

/// What a router would say in place of this refusal.
pub(super) fn unreachable(refusal: Refusal) -> Option<Unreachable> {
    match refusal {
        Refusal::TargetRefused => Some(Unreachable::Port),
        Refusal::Unreachable | Refusal::TimedOut | Refusal::NoSource => Some(Unreachable::Host),
        _ => None,
    }
}
