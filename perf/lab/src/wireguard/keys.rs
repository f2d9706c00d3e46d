//! Curve25519 keys.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use x25519_dalek::{PublicKey, StaticSecret};

/// A private key and its public key.
#[derive(Clone)]
pub struct KeyPair {
    /// The private key.
    pub private: [u8; 32],
    /// The public key.
    pub public: [u8; 32],
}

impl KeyPair {
    /// A new random pair.
    #[must_use]
    pub fn generate() -> Self {
        let private = StaticSecret::from(rand::random::<[u8; 32]>());
        Self {
            private: private.to_bytes(),
            public: PublicKey::from(&private).to_bytes(),
        }
    }

    /// The public key as `wg` shows it.
    #[must_use]
    pub fn public_base64(&self) -> String {
        BASE64_STANDARD.encode(self.public)
    }
}

/// The public key only.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.public_base64())
    }
}
