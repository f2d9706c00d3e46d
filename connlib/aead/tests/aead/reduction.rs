//! The last reduction of Poly1305, in every kernel and each way to seal and open.
//!
//! Random packets do not exercise it: they would have to leave the accumulator at p or above. Here the
//! second block of each ciphertext was solved for that.

use ::poly1305::{Poly1305, universal_hash::KeyInit};
use convoy_aead::{Aead, Key, Open, SLOTS, Seal, SealInPlace, TAG, seam::Packet};

use crate::{
    kernels,
    oracles::{nonce, sealed_by_others},
};

const LEN: usize = 32;

/// Two blocks of ciphertext under the key of 32 bytes n and the counter n, and the tag, as little-endian
/// numbers. They leave in the accumulator, in this order and twice: p − 1, which stays; p; p + 1; 2¹³⁰ − 1;
/// 2¹³⁰; 2¹³⁰ + 2⁴⁴ − 1; 2¹³⁰ + 2⁴⁴; 2¹³⁰ + 2⁴⁵ + 2⁴⁴ − 1. From the fifth on, the second limb has more than
/// 44 bits.
const SEALED: [[u128; 3]; SLOTS] = [
    [
        0x0,
        0x317b51375c6bbd6dc654bf7eae627a05,
        0xc70d778bccef36a81aed8da0b819d2b7,
    ],
    [
        0x2d,
        0xf979fa617f6e7afc324c5dd999eef9dd,
        0x37849d5cc5de535c65608c90665c4c25,
    ],
    [
        0x4e,
        0xfbdcf296b27d33b4181f33c656e6aefc,
        0xf9cca07477805e3f9e7c62819ded8962,
    ],
    [
        0x6c,
        0xff8ceeaa267ab4c2bcd5e8fa731680a7,
        0xbd2b4869e4365f9e42dd7bd876c8c31c,
    ],
    [
        0x4a,
        0xfec0c4973e5d14b52e2c99ed6d1536da,
        0xfd87c3636403ced7e2d33ebcf887b707,
    ],
    [
        0x1b,
        0xf592c9031aabe026ca271d99362cd142,
        0xb947d4a1c709f08d30194009504e8106,
    ],
    [
        0x82,
        0xfe52c35eeeef828b9822bfc6670563de,
        0xd3e95b16ce871a5efe283a35dffff146,
    ],
    [
        0x29,
        0xf50d65e7f35d1e100b1415d188167fa6,
        0xb4c96804df8f3fd00b747635d4c1b762,
    ],
    [
        0x0,
        0xdce0ac15b3f01bc43a92dc353bc83413,
        0x37e8bad9d1762555e5a4a470eaf5b78f,
    ],
    [
        0x0,
        0x0a20e8959a810aa10a3c5b1c9e8b5bf9,
        0x9c51d7234f4ca2d1271b86c77cdd55e4,
    ],
    [
        0x14,
        0xff5b581157af01a0d8710eaae4ec3e24,
        0x263356b4f1c2cd921744dca2a8e21f1c,
    ],
    [
        0x56,
        0xfecf3490b7ac88dcf877565a539ab9f3,
        0xf11528cd47b1a287ca1302b8ccc09dcb,
    ],
    [
        0x52,
        0xf91c857cace12755524aa15ebeddfe93,
        0x98861eedcf3794f1fc4d751d7b8245a8,
    ],
    [
        0x1f,
        0xf4e059f7e40eff79a3d0411d5a402850,
        0xf20834fd844502c98c4cc1df0c56f1b1,
    ],
    [
        0x13,
        0xfe7c6decedcd5bdff6588f5a543e1432,
        0x38f11eb4e72796753e4badd49df4d7b7,
    ],
    [
        0x38,
        0xfd3dfffb66b4543961db3601a7acb92c,
        0x74b81f801313b341954391ab4e5cc8a0,
    ],
];

/// Pairs of blocks that leave the same numbers under each r of [`R`], 8 numbers for each.
const BLOCKS: [[u128; 2]; 2 * 8] = [
    [0x2e, 0xf7394bc1e5d49e9caaf23aefed6bbe1e],
    [0x2f, 0xfc0000bdfc0000bdfc0000bdfc00002a],
    [0x0, 0x00c6b4fd122b62224d0dc5cf0a94420b],
    [0x0, 0x3f1ad3e584ad887a7037172d6651082c],
    [0x0, 0x53e188ddaad8ea97d144dcf784e54a37],
    [0x20, 0xf53caa74610a2ae1b457c94aec746b44],
    [0x21, 0xfa035f7077358d0305658f18fb08ad50],
    [0x0, 0x6180561819c36e363c992c0bf8bb311e],
    [0x0, 0xb8032377ecc8dc91ff03f03fc0fc0fae],
    [0x1f, 0xfc00007efc000080fffffffffffffffb],
    [0x2, 0xfffcdc99cb37238000fc0fc03f03f04d],
    [0x2c, 0xfbf372e628dc8e8103f03f00fc0fc139],
    [0xf, 0xfff04f00f813b18004ec4ec13b13b18b],
    [0x23, 0xfe2aa2d279d8924d42f53b10bd4ac52a],
    [0x7, 0xf2277ef1390fb55043f14ad0fc4eb57c],
    [0x12, 0xf29902af0bd099e9c0ff33303fc0cd0c],
];
/// The greatest r that clamping leaves, and its upper half.
const R: [u128; 2] = [
    0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff,
    0x0fff_fffc_0fff_fffc << 64,
];

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn each_way_to_seal_and_open_reduces_from_p_on() {
    for first in 0..SLOTS {
        let packets: Vec<_> = (0..SLOTS)
            .map(|n| Vector::new((first + n) % SLOTS))
            .collect();
        for kernel in kernels() {
            check(kernel.aead(), &packets);
        }
    }
}

#[test]
fn chosen_keys_reduce_from_p_on() {
    for s in [0, u128::MAX] {
        let keys = std::array::from_fn(|n| joined([R[n / 8], s]));
        let messages = BLOCKS.map(joined::<LEN>);
        for kernel in kernels() {
            let tags = kernel.poly1305(&keys, messages.each_ref().map(|it| &it[..]));
            for n in 0..SLOTS {
                let expected = Poly1305::new(&keys[n].into()).compute_unpadded(&messages[n]);
                assert_eq!(tags[n][..], expected[..], "{kernel:?}, message {n}");
            }
        }
    }
}

struct Vector {
    key: Key,
    counter: u64,
    plain: Vec<u8>,
    sealed: [u8; LEN + TAG],
}

impl Vector {
    fn new(n: usize) -> Self {
        let (bytes, counter) = ([n as u8; 32], n as u64);
        let sealed = joined(SEALED[n]);
        let packet = |text| Packet {
            key: bytes,
            nonce: nonce(counter),
            aad: &[],
            text,
        };
        // Encrypting a ciphertext decrypts it.
        let (plain, _) = sealed_by_others(&packet(&sealed[..LEN]));
        let (ciphertext, tag) = sealed_by_others(&packet(&plain));
        assert_eq!([&ciphertext[..], &tag].concat(), sealed, "vector {n}");
        Self {
            key: Key::new(&bytes),
            counter,
            plain,
            sealed,
        }
    }
}

fn check(aead: Aead, vectors: &[Vector]) {
    let mut sealed = [[0; LEN + TAG]; SLOTS];
    let slots = vectors.iter().zip(&mut sealed);
    let slots = slots.map(|(it, sealed)| Seal::new(&it.key, it.counter, &it.plain, sealed));
    aead.seal(&mut slots.collect::<Result<Vec<_>, _>>().unwrap());

    let mut in_place = [[0; LEN + TAG]; SLOTS];
    let slots = vectors.iter().zip(&mut in_place);
    let slots = slots.map(|(it, packet)| {
        packet[..LEN].copy_from_slice(&it.plain);
        SealInPlace::new(&it.key, it.counter, packet)
    });
    aead.seal_in_place(&mut slots.collect::<Result<Vec<_>, _>>().unwrap());

    let mut opened = [[0; LEN]; SLOTS];
    let slots = vectors.iter().zip(&mut opened);
    let slots = slots.map(|(it, opened)| Open::new(&it.key, it.counter, &it.sealed, opened));
    let outcome = aead.open(&mut slots.collect::<Result<Vec<_>, _>>().unwrap());
    for (n, it) in vectors.iter().enumerate() {
        assert_eq!(sealed[n], it.sealed, "{aead:?}, slot {n}");
        assert_eq!(in_place[n], it.sealed, "{aead:?}, slot {n}");
        assert!(outcome.is_authentic(n), "{aead:?}, slot {n}");
        assert_eq!(opened[n][..], it.plain, "{aead:?}, slot {n}");
    }
}

fn joined<const BYTES: usize>(numbers: impl IntoIterator<Item = u128>) -> [u8; BYTES] {
    let bytes = numbers.into_iter().flat_map(u128::to_le_bytes);
    bytes.collect::<Vec<_>>().try_into().unwrap()
}
