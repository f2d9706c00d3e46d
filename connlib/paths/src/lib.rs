//! Finds the best path to a peer through NATs, as a pure state machine.
//!
//! Two peers share a hub and a session of their own. Each side has an [`Agent`] for the other, which is driven thus:
//!
//! 1. [`Agent::want`] when data for the peer has no path; if it returns true, see to it that there is a session.
//! 2. [`Agent::handle_session`] when there is one.
//! 3. [`Agent::handle_message`] for each [`Message`] that the peer has sent in the session.
//! 4. [`Agent::handle_timeout`] when [`Agent::poll_timeout`] has passed.
//! 5. [`Agent::poll_transmit`] until it is empty: messages to be sealed in the session, and sent by the hub or to a
//!    candidate.
//! 6. [`Agent::poll_event`] until it is empty: which path data takes from now on.
//!
//! Each side tells the other its addresses by the hub, probes the addresses that it is told, and sends data to the best
//! that has answered. [`is_probeable`] says which addresses are never probed, whoever names them. A peer that lies makes
//! this side send [`MOST_UNANSWERED_PROBES`] probes at once and one a second later on, each smaller than the message that
//! named the address; it gets one reply for a probe, as long as the probe.
//!
//! Deliberately left outside: sessions, routing, sockets, clocks, and the discovery of own addresses.

mod agent;
mod budget;
mod candidate;
mod message;
mod offer;
mod pair;
mod rank;

pub use agent::{Agent, Event, Origin, Transmit, WhyNotDirect};
pub use budget::{MOST_UNANSWERED_PROBES, PROBES_PER_SECOND, ProbeBudget};
pub use candidate::is_probeable;
pub use message::{Candidates, InvalidMessage, MAX_CANDIDATES, MAX_MESSAGE, Message};
pub use pair::{MAX_LEARNT, MAX_PAIRS, Pair};
