//! Other implementations of ChaCha20-Poly1305, and packets to compare them on.

use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit};
use convoy_aead::{TAG, seam::Packet};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Ciphertext and tag.
pub(crate) type Sealed = (Vec<u8>, [u8; TAG]);

/// The packet sealed by RustCrypto and by ring, which must agree; Miri cannot run ring.
pub(crate) fn sealed_by_others(packet: &Packet<'_>) -> Sealed {
    let sealed = by_rustcrypto(packet);
    if !cfg!(miri) {
        assert_eq!(sealed, by_ring(packet), "ring and RustCrypto differ");
    }
    sealed
}

fn by_rustcrypto(packet: &Packet<'_>) -> Sealed {
    let cipher = ChaCha20Poly1305::new(&packet.key.into());
    let mut text = packet.text.to_vec();
    let tag = cipher
        .encrypt_inout_detached(&packet.nonce.into(), packet.aad, text.as_mut_slice().into())
        .unwrap();
    (text, tag.into())
}

fn by_ring(packet: &Packet<'_>) -> Sealed {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &packet.key).unwrap());
    let nonce = Nonce::assume_unique_for_key(packet.nonce);
    let mut text = packet.text.to_vec();
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::from(packet.aad), &mut text)
        .unwrap();
    (text, tag.as_ref().try_into().unwrap())
}

/// Bytes without a pattern, different for each seed (splitmix64).
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0xd134_2543_de82_ef95);
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    });
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

pub(crate) fn key(seed: u64) -> [u8; 32] {
    noise(seed, 32).try_into().unwrap()
}

/// The nonce of a data message with this counter.
pub(crate) fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}
