//! Handshakes: Noise_IKpsk2 by snow, with our own randomness, and Diffie-Hellman results that it
//! would otherwise compute for each handshake.
//!
//! Each handshake message first passes boringtun's checks of formats and MACs, in `identity.rs`; boringtun
//! provides X25519, too.

mod identity;
mod initiator;
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
