//! Rootless NAT: ends peers' flows here and opens them again from sockets of this host.
//!
//! ```text
//!  peers ═ tunnel ═ engine ── new flows: inlet ───────────▶ Gateway ──▶ connects to the target
//!                       └──── the flow itself: its end inside ◀── relay ──▶ a socket of this host
//! ```
//!
//! 1. A [`Gateway`] takes packets that open a flow from an engine's [`Inlet`], and makes an end inside that has the
//!    target's address. It connects to the target first, and tells the peer what the target answers.
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
