//! The keys common to all handshakes with one peer.

use std::sync::Arc;

use boringtun::x25519;

use super::identity::{Identity, KeyPair};
use crate::{config::PublicKey, cookies::MacKeys};

/// The static keys of both sides, and the keys derived from them.
pub(crate) struct PeerKeys {
    pub(super) statics: Arc<Statics>,
    pub(crate) macs: MacKeys,
}

/// The static keys of both sides, and their Diffie-Hellman result.
pub(super) struct Statics {
    pub(super) own: Arc<KeyPair>,
    pub(super) peer: PublicKey,
    pub(super) shared: x25519::SharedSecret,
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
    pub(crate) fn new(identity: &Identity, peer: PublicKey) -> Option<Box<Self>> {
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
