//! For tests, fuzz targets and benches only, not part of the API: full nonces, additional data, chosen
//! one-time keys, and a choice of the kernel.

use crate::{
    Aead, TAG,
    dispatch::Costs,
    engine::Engine,
    kernel::{Authenticate, Lane, Opening, SealingInPlace, Tags, Text, crypt},
    key::words_of,
    lanes::{Array, LANES, Lanes},
};

/// The kernel, for one kind of lanes.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(Engine);

/// A packet as RFC 8439 §2.8 has it.
pub struct Packet<'a> {
    pub key: [u8; 32],
    pub nonce: [u8; 12],
    pub aad: &'a [u8],
    pub text: &'a [u8],
}

impl Kernel {
    /// The kernels that this CPU can run; that of plain arrays comes first.
    pub fn all() -> Vec<Self> {
        let array = std::iter::once(Self(Engine::Array(Array)));
        #[cfg(target_arch = "x86_64")]
        let lanes = crate::lanes::Avx512::detect().map(|lanes| Self(Engine::Avx512(lanes)));
        #[cfg(not(target_arch = "x86_64"))]
        let lanes = None;
        array.chain(lanes).collect()
    }

    /// An implementation that seals and opens every batch with this kernel, however small the batch.
    pub fn aead(self) -> Aead {
        Aead {
            engine: self.0,
            costs: Costs::ALWAYS_BATCH,
            why_ring: None,
        }
    }

    /// Seals at most 16 packets; returns the ciphertext and the tag of each.
    pub fn seal(self, packets: &[Packet<'_>]) -> Vec<(Vec<u8>, [u8; TAG])> {
        let mut texts: Vec<_> = packets.iter().map(|packet| packet.text.to_vec()).collect();
        let texts_in_place = texts.iter_mut().map(|text| SealingInPlace(text));
        let tags = self.crypt(packets, texts_in_place);
        texts.into_iter().zip(tags.map(u128::to_le_bytes)).collect()
    }

    /// Opens at most 16 packets, whose `text` is ciphertext; returns the plaintext and the right tag of each.
    pub fn open(self, packets: &[Packet<'_>]) -> Vec<(Vec<u8>, [u8; TAG])> {
        let mut texts: Vec<_> = packets.iter().map(|it| vec![0; it.text.len()]).collect();
        let both = texts.iter_mut().zip(packets);
        let openings = both.map(|(plaintext, packet)| Opening {
            ciphertext: packet.text,
            plaintext,
        });
        let tags = self.crypt(packets, openings);
        texts.into_iter().zip(tags.map(u128::to_le_bytes)).collect()
    }

    fn crypt<T: Text>(self, packets: &[Packet<'_>], texts: impl Iterator<Item = T>) -> Tags {
        assert!(packets.len() <= LANES);
        let keys: Vec<_> = packets.iter().map(|packet| words_of(&packet.key)).collect();
        let filled = texts.zip(packets.iter().zip(&keys));
        let filled = filled.map(|(text, (packet, key))| Lane {
            key,
            nonce: packet.nonce(),
            aad: packet.aad,
            text,
        });
        match self.0 {
            Engine::Ring => unreachable!("ring is no kernel"),
            Engine::Array(lanes) => crypt(lanes, filled),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx512(lanes) => crypt(lanes, filled),
        }
    }

    /// The Poly1305 tags of messages, each of whole blocks of 16 bytes, under one-time keys r ‖ s.
    pub fn poly1305(
        self,
        keys: &[[u8; 32]; LANES],
        messages: [&[u8]; LANES],
    ) -> [[u8; TAG]; LANES] {
        assert!(messages.iter().all(|message| message.len() % 16 == 0));
        let computation = Authenticate { keys, messages };
        let tags = match self.0 {
            Engine::Ring => unreachable!("ring is no kernel"),
            Engine::Array(lanes) => lanes.run(computation),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx512(lanes) => lanes.run(computation),
        };
        tags.map(u128::to_le_bytes)
    }
}

impl Packet<'_> {
    fn nonce(&self) -> [u32; 3] {
        let (words, _) = self.nonce.as_chunks();
        std::array::from_fn(|n| u32::from_le_bytes(words[n]))
    }
}
