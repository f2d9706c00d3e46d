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
//! 7. With a relay ([`Agent::allow_relay`]): while [`Agent::wants_relay`], ask it for channels to
//!    [`Agent::relay_peers`], and for an address of each of their families; tell the agent by [`Agent::set_relay`] and
//!    [`Agent::handle_channel`]. Else give it back.
//!
//! Each side sends its addresses through the hub, probes the addresses it receives, and moves data to the best one that
//! answers. [`is_probeable`] rejects addresses that are neither probed nor replied to, whoever names them. A lying peer
//! makes this side send at most [`MOST_UNANSWERED_PROBES`] probes at once and one per second after that, five if it
//! answers them, none longer than the message that named the address. Each probe gets one reply of its own length,
//! [`PROBES_PER_SECOND`] in the long run. Its addresses get [`MAX_CHANNELS`] channels of the relay, new ones one per
//! [`BETWEEN_CHANNELS`] after [`CHANNELS_AT_ONCE`].
//!
//! The state machine of an interface (`convoy-proto`) calls it. It never opens a socket, reads a clock, or decides
//! which peer may use an address. Deliberately left outside: sessions, routing, sockets, clocks, and the discovery of
//! own addresses (`convoy-stun`).

mod agent;
mod budget;
mod candidate;
mod message;
mod offer;
mod pair;
mod rank;

pub use agent::{Agent, Event, Origin, Transmit};
pub use budget::{
    BETWEEN_CHANNELS, CHANNELS_AT_ONCE, MOST_UNANSWERED_PROBES, PROBES_PER_SECOND, ProbeBudget,
};
pub use candidate::is_probeable;
pub use convoy_types::WhyNotDirect;
pub use message::{Candidates, InvalidMessage, MAX_CANDIDATES, MAX_MESSAGE, Message};
pub use pair::{MAX_CHANNELS, MAX_LEARNT, MAX_PAIRS, Pair};
