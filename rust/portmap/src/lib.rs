//! Asks the router to forward a UDP port to this machine: by PCP (RFC 6887), NAT-PMP (RFC 6886) or UPnP; or asks
//! the gateway inside a tunnel for a port.
//!
//! 1. [`PortMapping::begin`] asks the default gateway, and renews the mapping until it is dropped.
//! 2. [`PortMapping::changed`] waits for news, [`PortMapping::state`] tells them.
//! 3. [`PortMapping::ask_again`] when the network may be another.
//! 4. [`withdraw`] ends a [`Mapping`]: later, or in another process. One that nobody withdraws ends by itself after
//!    [`LIFETIME`] at most.
//! 5. [`PortForwarding`] and [`withdraw_port`] do the same for a provider's port of UDP and TCP, through the tunnel.
//!
//! [`probe()`] asks what the router speaks, for `convoy doctor`.
//!
//! The supervisor of `convoy up` may call it. It sends to the default gateway alone, from sockets that have the tunnel's
//! mark and are bound to the gateway's interface, so they stay outside the tunnel and pass its kill switch. It never
//! accepts a mapping for another port or protocol, and changes nothing on this machine.
//!
//! UPnP's requests go by TCP, which a kill switch lets out to the default gateway alone; an answer that names another
//! machine is ignored. Deliberately left outside: IPv6, whose firewalls open from inside.

mod ask;
mod exchange;
mod forward;
#[cfg(test)]
mod fuzz;
mod gateway;
mod igd;
mod ledger;
mod mapping;
mod nat_pmp;
mod pcp;
mod probe;
mod problem;
mod task;

use std::time::Duration;

pub use ask::withdraw;
pub use forward::{
    ForwardProblem, ForwardState, ForwardTarget, ForwardedPort, PortForwarding, withdraw_port,
};
pub use igd::{Place, Service};
pub use ledger::State;
pub use mapping::{Control, Mapping, Protocol, Target, Transport};
pub use probe::{Probed, probe};
pub use problem::Problem;
pub use task::PortMapping;

/// Longest time for which a router is asked to forward.
pub const LIFETIME: Duration = Duration::from_secs(600);
