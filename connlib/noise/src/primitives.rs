//! The cryptographic primitives for snow; keys in them are wiped on drop.

use std::sync::Arc;

use blake2::{Blake2s256, Digest};
use boringtun::x25519;
use chacha20poly1305::{
    ChaCha20Poly1305,
    aead::{AeadInOut, KeyInit},
};
use snow::{
    Error,
    types::{Cipher, Dh, Hash, Random},
};
use zeroize::Zeroizing;

use crate::peer_keys::Statics;

/// Length of an AEAD tag, in bytes.
const TAG: usize = 16;

/// Random bytes for one ephemeral key, drawn in advance.
pub(crate) struct Drawn(pub(crate) Zeroizing<[u8; 32]>);

impl Random for Drawn {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let drawn = self.0.get(..bytes.len()).ok_or(Error::Rng)?;
        bytes.copy_from_slice(drawn);
        Ok(())
    }
}

/// One side's key pair: the static one, or an ephemeral one.
pub(crate) struct Curve25519 {
    statics: Arc<Statics>,
    ephemeral: Option<(x25519::StaticSecret, x25519::PublicKey)>,
}

impl Curve25519 {
    /// The static key pair, until snow asks for an ephemeral one.
    pub(crate) fn new(statics: Arc<Statics>) -> Self {
        Self {
            statics,
            ephemeral: None,
        }
    }

    fn pair(&self) -> (&x25519::StaticSecret, &x25519::PublicKey) {
        let own = &self.statics.own;
        match &self.ephemeral {
            Some((private, public)) => (private, public),
            None => (&own.private, &own.public),
        }
    }
}

impl Dh for Curve25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    /// Ignored: snow calls it only with the static key, which is known already.
    fn set(&mut self, _: &[u8]) {}

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut key = Zeroizing::new([0; 32]);
        random.try_fill_bytes(&mut key[..])?;
        let private = x25519::StaticSecret::from(*key);
        let public = x25519::PublicKey::from(&private);
        self.ephemeral = Some((private, public));
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.pair().1.as_bytes()
    }

    fn privkey(&self) -> &[u8] {
        self.pair().0.as_bytes()
    }

    fn dh(&self, key: &[u8], shared: &mut [u8]) -> Result<(), Error> {
        let key: &[u8; 32] = key.first_chunk().ok_or(Error::Dh)?;
        if self.ephemeral.is_none() && *key == self.statics.peer.0 {
            shared[..32].copy_from_slice(self.statics.shared.as_bytes());
            return Ok(());
        }
        let computed = self.pair().0.diffie_hellman(&x25519::PublicKey::from(*key));
        if !computed.was_contributory() {
            return Err(Error::Dh);
        }
        shared[..32].copy_from_slice(computed.as_bytes());
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Blake2s(Blake2s256);

impl Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, hash: &mut [u8]) {
        let computed = std::mem::take(&mut self.0).finalize();
        hash[..32].copy_from_slice(&computed);
    }
}

#[derive(Default)]
pub(crate) struct ChaChaPoly(Zeroizing<[u8; 32]>);

impl ChaChaPoly {
    fn cipher(&self) -> ChaCha20Poly1305 {
        let key: &[u8; 32] = &self.0;
        ChaCha20Poly1305::new(key.into())
    }
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0.copy_from_slice(key);
    }

    /// `out` has room for the text and its tag, as snow has checked.
    fn encrypt(&self, counter: u64, data: &[u8], text: &[u8], out: &mut [u8]) -> usize {
        let (sealed, rest) = out.split_at_mut(text.len());
        sealed.copy_from_slice(text);
        let nonce = nonce(counter);
        let sealed = sealed.into();
        let tag = self
            .cipher()
            .encrypt_inout_detached(&nonce.into(), data, sealed);
        // INVARIANT: it refuses only texts longer than 256 GiB.
        rest[..TAG].copy_from_slice(&tag.unwrap_or_default());
        text.len() + TAG
    }

    fn decrypt(
        &self,
        counter: u64,
        data: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = sealed.split_last_chunk::<TAG>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(text);
        let nonce = nonce(counter);
        let opened =
            self.cipher()
                .decrypt_inout_detached(&nonce.into(), data, out.into(), tag.into());
        opened.map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}

/// The nonce of Noise: four zero bytes, then the counter in little-endian.
fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use convoy_types::{PrivateKey, PublicKey};

    use super::*;
    use crate::{Identity, PeerKeys};

    fn pair() -> Curve25519 {
        let [own, peer] = [1, 2].map(|n| Identity::new(&PrivateKey([n; 32])));
        let keys = PeerKeys::new(&own, peer.public_key()).unwrap();
        Curve25519::new(keys.statics)
    }

    #[test]
    fn the_static_result_is_the_one_that_would_be_computed() {
        let pair = pair();
        let PublicKey(peer) = pair.statics.peer;
        let mut shared = [0; 32];
        pair.dh(&peer, &mut shared).unwrap();
        let private = x25519::StaticSecret::from([1; 32]);
        let computed = private.diffie_hellman(&x25519::PublicKey::from(peer));
        assert_eq!(shared, *computed.as_bytes());
    }

    #[test]
    fn an_ephemeral_key_takes_the_place_of_the_static_one() {
        let mut pair = pair();
        let (public, peer) = (pair.pubkey().to_vec(), pair.statics.peer.0);
        let [mut before, mut after] = [[0; 32]; 2];
        pair.dh(&peer, &mut before).unwrap();
        pair.generate(&mut Drawn(Zeroizing::new([3; 32]))).unwrap();
        pair.dh(&peer, &mut after).unwrap();
        assert_ne!(pair.pubkey(), public);
        assert_ne!(before, after);
    }

    #[test]
    fn a_result_of_zero_is_refused() {
        let mut pair = pair();
        let low_order = [0; 32];
        assert!(pair.dh(&low_order, &mut [0; 32]).is_err());
        pair.generate(&mut Drawn(Zeroizing::new([3; 32]))).unwrap();
        assert!(pair.dh(&low_order, &mut [0; 32]).is_err());
    }
}
