//! Handshakes: Noise_IKpsk2 by snow. We give it randomness and primitives, and cache the Diffie-Hellman
//! result of the two static keys, which it would compute for each handshake.
//!
//! Each handshake message first passes boringtun's checks of format and MACs (`macs.rs`). boringtun also
//! provides X25519.

mod identity;
mod initiator;
mod macs;
mod peer_keys;
mod primitives;
mod resolver;
mod responder;
#[cfg(test)]
mod tests;

pub use crate::messages::DATA_OVERHEAD;
pub use identity::Identity;
pub(crate) use identity::Screened;
pub(crate) use initiator::Initiation;
pub(crate) use peer_keys::PeerKeys;
pub(crate) use responder::Claim;
