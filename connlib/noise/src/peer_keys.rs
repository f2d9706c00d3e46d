//! The keys common to all handshakes with one peer.

use std::sync::Arc;

use boringtun::x25519;
use convoy_types::PublicKey;

use crate::{
    cookies::MacKeys,
    identity::{Identity, KeyPair},
};

/// The static keys of both sides, and the keys derived from them.
pub struct PeerKeys {
    pub(crate) statics: Arc<Statics>,
    /// Keys for the MACs of messages to the peer.
    pub macs: MacKeys,
}

/// The static keys of both sides, and their Diffie-Hellman result.
pub(crate) struct Statics {
    pub(crate) own: Arc<KeyPair>,
    pub(crate) peer: PublicKey,
    pub(crate) shared: x25519::SharedSecret,
}

impl std::fmt::Debug for PeerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerKeys({})", self.statics.peer)
    }
}

impl PeerKeys {
    /// Computes the Diffie-Hellman result of the two static keys.
    ///
    /// `None` for a public key of low order: anybody could impersonate such a peer.
    pub fn new(identity: &Identity, peer: PublicKey) -> Option<Box<Self>> {
        let own = Arc::clone(&identity.keys);
        let shared = own.private.diffie_hellman(&x25519::PublicKey::from(peer.0));
        let statics = Statics { own, peer, shared };
        statics.shared.was_contributory().then(|| {
            Box::new(Self {
                macs: MacKeys::new(&peer),
                statics: Arc::new(statics),
            })
        })
    }
}
