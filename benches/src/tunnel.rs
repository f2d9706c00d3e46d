//! Throughput, latency and cost of a tunnel: the scenes in which contenders are compared.
//!
//! ```text
//!    left                                          right
//!    daemon wg0 ═══════════ tunnel ═══════════ wg0 daemon
//!         veth0 ──────────── veth ──────────── veth0
//!    agents: TCP, probes, paced UDP                agent
//! ```
//!
//! Both ends run the same program, if it needs root.
//!
//! 1. [`scenes`]: the table of all scenes; [`contender`]: the programs that take part.
//! 2. [`Stand`]: a contender between two namespaces; it runs the tests of the scenes.
//! 3. [`gateway`]: what is around a gateway at the left end; [`paths`]: a hub and a TURN server.

pub(crate) mod contender;
mod gateway;
mod paths;
pub(crate) mod scenes;
mod stand;

pub(crate) use contender::{Contender, Set};
pub(crate) use scenes::Scene;
pub(crate) use stand::Stand;
