//! The cryptography of one peer: handshakes, and the sessions that they lead to.
//!
//! ```text
//!  Identity ── screen ──▶ Screened: an initiation, a response, a cookie reply
//!  PeerKeys ── Initiation::write … complete ──▶ Session   the initiator's part
//!           ── Claim::read … respond ─────────▶ Session   the responder's part
//!  Session  ── reserve, seal; ReplayWindow::check, mark
//! ```
//! Noise_IKpsk2 comes from snow. We give it randomness and primitives, and cache the Diffie-Hellman result of the two static
//! keys, which it would compute for each handshake. Each handshake message first passes boringtun's checks of format and
//! MACs ([`Identity::screen`]). boringtun also provides X25519. No other crate names the two.
//!
//! `convoy-proto` drives it: it draws the keys and indices at random, and decides when to begin a handshake, which session
//! to send in, and whether an initiation is a replay. This crate is pure: it reads no clock, opens no socket, keeps no list
//! of peers and starts no timer.

mod cookies;
mod handshake_limiter;
mod identity;
mod initiator;
mod macs;
pub mod messages;
mod peer_keys;
mod primitives;
mod replay_window;
mod resolver;
mod responder;
mod session;
mod tai64n;
#[cfg(test)]
mod tests;
mod wipe;

pub use cookies::{Cookies, MacKeys};
pub use handshake_limiter::HandshakeLimiter;
pub use identity::{Identity, Screened};
pub use initiator::Initiation;
pub use peer_keys::PeerKeys;
pub use replay_window::ReplayWindow;
pub use responder::Claim;
pub use session::{
    REJECT_AFTER_MESSAGES, REJECT_AFTER_TIME, REKEY_AFTER_MESSAGES, REKEY_AFTER_TIME, Session,
    SessionKeys,
};
pub use tai64n::Tai64n;
pub use wipe::leave_no_trace;

#[cfg(all(feature = "mock-clock", not(debug_assertions)))]
compile_error!("mock-clock makes time stand still: use it in tests only");
