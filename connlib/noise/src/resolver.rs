//! Builds snow's handshake state with our primitives.

use std::sync::Arc;

use snow::{
    Builder, Error, HandshakeState,
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::CryptoResolver,
    types::{Cipher, Dh, Hash, Random},
};
use zeroize::Zeroizing;

use crate::{
    peer_keys::{PeerKeys, Statics},
    primitives::{Blake2s, ChaChaPoly, Curve25519, Drawn},
};

/// The construction and the identifier of the WireGuard paper (§5.4): the protocol name and the prologue in
/// Noise's terms.
const CONSTRUCTION: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

/// The position of the preshared key in the pattern: at the end of the second message.
pub(crate) const PSK: usize = 2;

/// The side of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// The state of a new handshake; set the preshared key later. Boxed, so that no move leaves a copy behind.
pub(crate) fn handshake(
    keys: &PeerKeys,
    role: Role,
    ephemeral: Zeroizing<[u8; 32]>,
) -> Result<Box<HandshakeState>, Error> {
    let resolver = Resolver {
        statics: Arc::clone(&keys.statics),
        ephemeral,
    };
    let builder = Builder::with_resolver(CONSTRUCTION.parse()?, Box::new(resolver));
    // The resolver has the private key.
    let builder = builder.prologue(IDENTIFIER)?.local_private_key(&[])?;
    Ok(Box::new(match role {
        Role::Initiator => builder
            .remote_public_key(&keys.statics.peer.0)?
            .build_initiator()?,
        Role::Responder => builder.build_responder()?,
    }))
}

struct Resolver {
    statics: Arc<Statics>,
    ephemeral: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Drawn(self.ephemeral.clone())))
    }

    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        Some(Box::new(Curve25519::new(Arc::clone(&self.statics))))
    }

    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        Some(Box::new(Blake2s::default()))
    }

    fn resolve_cipher(&self, _: &CipherChoice) -> Option<Box<dyn Cipher>> {
        Some(Box::new(ChaChaPoly::default()))
    }
}
