//! Fuzzes batches of any shape: both kernels, ring and RustCrypto give the same, and a tag that is wrong
//! wipes its slot only.

use ::poly1305::{Poly1305, universal_hash::KeyInit};
use convoy_aead::{Aead, Key, Open, SLOTS, Seal, TAG, seam::Packet};
use convoy_fuzz::{Result, Unstructured};

use crate::{
    kernels,
    oracles::{key, noise, nonce, sealed_by_others},
};

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn fuzz_seals() {
    convoy_fuzz::run("seals", 200, 700, |input| {
        match input.int_in_range(0..=2u8)? {
            0 => seal_and_open_anything(input),
            1 => seal_and_open_data_messages(input),
            _ => authenticate(input),
        }
    });
}

/// Through the seam: any nonce, any additional data.
fn seal_and_open_anything(input: &mut Unstructured<'_>) -> Result<()> {
    let mut lanes = Vec::new();
    for _ in 0..input.int_in_range(0..=SLOTS)? {
        let (seed, nonce): (u8, [u8; 12]) = input.arbitrary()?;
        lanes.push((key(seed.into()), nonce, text(input)?, text(input)?));
    }
    let packets: Vec<_> = lanes
        .iter()
        .map(|(key, nonce, aad, text)| Packet {
            key: *key,
            nonce: *nonce,
            aad,
            text,
        })
        .collect();
    let expected: Vec<_> = packets.iter().map(sealed_by_others).collect();
    let received: Vec<_> = packets
        .iter()
        .zip(&expected)
        .map(|(packet, (text, _))| Packet { text, ..*packet })
        .collect();
    for kernel in kernels() {
        assert!(kernel.seal(&packets) == expected, "{kernel:?}");
        for (n, (text, tag)) in kernel.open(&received).into_iter().enumerate() {
            assert!(
                text == packets[n].text && tag == expected[n].1,
                "{kernel:?}"
            );
        }
    }
    Ok(())
}

/// Through the API: some tags are wrong, and some packets may go by ring.
fn seal_and_open_data_messages(input: &mut Unstructured<'_>) -> Result<()> {
    let (mut packets, mut changes) = (Vec::new(), Vec::new());
    for _ in 0..input.int_in_range(0..=SLOTS)? {
        let (seed, counter): (u8, u64) = input.arbitrary()?;
        packets.push((seed.into(), counter, text(input)?));
        changes.push(input.ratio(1, 4)?.then_some(input.arbitrary::<u16>()?));
    }
    let keys: Vec<_> = packets
        .iter()
        .map(|(seed, ..)| Key::new(&key(*seed)))
        .collect();
    let aeads = kernels().into_iter().map(|kernel| kernel.aead());
    for aead in aeads.chain([Aead::ring(), Aead::auto()]) {
        let mut sealed: Vec<_> = packets.iter().map(|it| vec![0; it.2.len() + TAG]).collect();
        let slots = packets.iter().zip(&mut sealed).zip(&keys);
        let slots = slots.map(|(((_, counter, plain), sealed), key)| {
            Seal::new(key, *counter, plain, sealed).expect("the lengths fit")
        });
        aead.seal(&mut slots.collect::<Vec<_>>());
        for ((seed, counter, text), sealed) in packets.iter().zip(&sealed) {
            let (ciphertext, tag) = sealed_by_others(&Packet {
                key: key(*seed),
                nonce: nonce(*counter),
                aad: &[],
                text,
            });
            assert!(*sealed == [&ciphertext[..], &tag].concat(), "{aead:?}");
        }

        for (sealed, change) in sealed.iter_mut().zip(&changes) {
            let bits = 8 * sealed.len();
            if let Some(bit) = change.map(|bit| usize::from(bit) % bits) {
                sealed[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let mut opened: Vec<_> = packets.iter().map(|it| vec![0xee; it.2.len()]).collect();
        let slots = packets.iter().zip(&sealed).zip(&mut opened).zip(&keys);
        let slots = slots.map(|((((_, counter, _), sealed), opened), key)| {
            Open::new(key, *counter, sealed, opened).expect("the lengths fit")
        });
        let outcome = aead.open(&mut slots.collect::<Vec<_>>());
        for (n, opened) in opened.iter().enumerate() {
            assert_eq!(outcome.is_authentic(n), changes[n].is_none(), "{aead:?}");
            let expected = match changes[n] {
                None => packets[n].2.clone(),
                Some(_) => vec![0; opened.len()],
            };
            assert!(*opened == expected, "{aead:?}");
        }
    }
    Ok(())
}

/// Poly1305 with chosen one-time keys and blocks.
fn authenticate(input: &mut Unstructured<'_>) -> Result<()> {
    let (mut keys, mut messages) = ([[0; 32]; SLOTS], [const { Vec::new() }; SLOTS]);
    for (key, message) in keys.iter_mut().zip(&mut messages) {
        let (r, s) = (number(input)?, number(input)?);
        key[..16].copy_from_slice(&r.to_le_bytes());
        key[16..].copy_from_slice(&s.to_le_bytes());
        for _ in 0..input.int_in_range(0..=8)? {
            message.extend(number(input)?.to_le_bytes());
        }
    }
    for kernel in kernels() {
        let tags = kernel.poly1305(&keys, messages.each_ref().map(|message| &message[..]));
        for n in 0..SLOTS {
            let expected = Poly1305::new(&keys[n].into()).compute_unpadded(&messages[n]);
            assert_eq!(tags[n][..], expected[..], "{kernel:?}");
        }
    }
    Ok(())
}

/// A text of a few bytes, of a packet, or rarely of a jumbo packet.
fn text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let longest = match input.arbitrary()? {
        0..=199_u8 => 130,
        200..=253 => 1_500,
        _ => 10_000,
    };
    let len = input.int_in_range(0..=longest)?;
    Ok(noise(input.arbitrary::<u8>()?.into(), len))
}

/// Few bytes of input make numbers with long runs of equal bits.
fn number(input: &mut Unstructured<'_>) -> Result<u128> {
    let (start, bits, add): (u8, u8, i8) = input.arbitrary()?;
    let run = u128::MAX >> (bits % 128);
    Ok(run
        .rotate_left((start % 128).into())
        .wrapping_add_signed(add.into()))
}
