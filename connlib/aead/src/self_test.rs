//! Tests at start whether the kernel computes right results on this CPU.

use crate::{
    Key, TAG,
    kernel::{Lane, Opening, Sealing, SealingInPlace, crypt},
    key::words_of,
    lanes::{LANES, Lanes},
    slot::{lane, seal_by_ring},
};

/// The example of RFC 8439 §2.8.2. Its tag covers the ciphertext, so it tests both.
const TEXT: &[u8; 114] = b"Ladies and Gentlemen of the class of '99: \
    If I could offer you only one tip for the future, sunscreen would be it.";
const KEY: [u8; 32] = counting_from(0x80);
const NONCE: [u32; 3] = [0x0000_0007, 0x4342_4140, 0x4746_4544];
const AAD: [u8; 12] = [
    0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
];
const ANSWER: [u8; TAG] = [
    0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60, 0x06, 0x91,
];

/// Lengths around the ends of blocks, and that of a full packet, in bytes.
const MIXED: [usize; LANES] = [
    0, 1, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 191, 192, 640, 1420,
];
const EQUAL: [usize; LANES] = [1420; LANES];

/// Returns whether sealing and opening are right in every lane.
pub(crate) fn passes<L: Lanes>(lanes: L) -> bool {
    gives_the_known_answer(lanes)
        && agrees_with_ring(lanes, MIXED)
        && agrees_with_ring(lanes, EQUAL)
}

fn gives_the_known_answer<L: Lanes>(lanes: L) -> bool {
    let key = words_of(&KEY);
    let mut texts = [*TEXT; LANES];
    let packets = texts.iter_mut().map(|text| Lane {
        key: &key,
        nonce: NONCE,
        aad: &AAD,
        text: SealingInPlace(text),
    });
    crypt(lanes, packets) == [u128::from_le_bytes(ANSWER); LANES]
}

/// Whether packets of these lengths, each with its own key and counter, are sealed as ring does and opened
/// again.
fn agrees_with_ring<L: Lanes>(lanes: L, lens: [usize; LANES]) -> bool {
    let keys: [Key; LANES] = std::array::from_fn(|n| Key::new(&counting_from(n as u8)));
    let counters: [u64; LANES] = std::array::from_fn(|n| u64::from(u32::MAX - 7) + n as u64);
    let plain = lens.map(|len| (0..len).map(|n| (n * 7 + len) as u8).collect::<Vec<_>>());
    let mut sealed = lens.map(|len| vec![0; len]);
    let mut opened = sealed.clone();

    let texts = sealed.iter_mut().zip(&plain).enumerate();
    let texts = texts.map(|(n, (ciphertext, plaintext))| {
        let text = Sealing {
            plaintext,
            ciphertext,
        };
        lane(&keys[n], counters[n], text)
    });
    let tags = crypt(lanes, texts);

    let mut in_place = plain.clone();
    let texts = in_place.iter_mut().enumerate();
    let texts = texts.map(|(n, text)| lane(&keys[n], counters[n], SealingInPlace(text)));
    let tags_of_in_place = crypt(lanes, texts);

    let texts = opened.iter_mut().zip(&sealed).enumerate();
    let texts = texts.map(|(n, (plaintext, ciphertext))| {
        let text = Opening {
            ciphertext,
            plaintext,
        };
        lane(&keys[n], counters[n], text)
    });
    let tags_of_opened = crypt(lanes, texts);

    let mut by_ring = plain.clone();
    let tags_by_ring = std::array::from_fn(|n| {
        u128::from_le_bytes(seal_by_ring(&keys[n], counters[n], &mut by_ring[n]))
    });
    let is_sealed = sealed == by_ring && tags == tags_by_ring;
    let is_sealed_in_place = in_place == by_ring && tags_of_in_place == tags_by_ring;
    is_sealed && is_sealed_in_place && opened == plain && tags_of_opened == tags
}

const fn counting_from(first: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut n = 0;
    while n < 32 {
        bytes[n] = first + n as u8;
        n += 1;
    }
    bytes
}

#[cfg(test)]
mod tests;
