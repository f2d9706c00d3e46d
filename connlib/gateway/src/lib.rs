//! A gateway that needs no root: flows of peers end here and go on as connections and datagrams of this host.
//!
//! ```text
//!  peers ═ tunnel ═ engine ── what begins a flow: inlet ──▶ Gateway ──▶ connects to the target
//!                       └──── the flow itself: its end inside ◀── relay ──▶ a socket of this host
//! ```
//!
//! 1. A [`Gateway`] gets what begins a flow from the [`Inlet`] of an engine, and ends inside that have the target's
//!    address. The target is asked first, and the peer hears what it answers.
//! 2. A [`Policy`](convoy_network::policy::Policy) decides which targets a peer may reach; [`Own`](convoy_network::own::Own) tells it this host's addresses.
//! 3. [`Shares`](convoy_network::shares::Shares) divide what the gateway can hold among the
//!    [`Peers`](convoy_network::peers::Peers).
//! 4. [`Dns`] answers their DNS queries.
//!
//! Programs call it, above both engines. It makes no tunnel and no namespace, and knows no file.
//!
//! Deliberately left out: flows that begin outside, and any other protocol than TCP, UDP and echo requests.

mod admission;
mod answer;
mod budget;
mod connections;
mod dns;
mod echo;
mod ends;
mod errors;
mod flows;
mod gateway;
mod inlet;
mod mapping;
mod pending;
mod reassembly;
mod scratch;
mod shared;
mod tcp;
mod udp;

pub use dns::{Dns, Over, Upstream};
pub use gateway::{Carried, Gateway, Settings};
pub use inlet::Inlet;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
