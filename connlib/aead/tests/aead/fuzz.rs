//! Fuzzes batches of any shape: each kernel, ring and RustCrypto give the same results, and a wrong tag
//! wipes only its own slot.
//!
//! The input chooses the implementation, keys, nonces, lengths and texts; beyond its end, all are zeros.

use ::poly1305::{Poly1305, universal_hash::KeyInit};
use convoy_aead::{
    Aead, Key, Open, SLOTS, Seal, SealInPlace, TAG,
    seam::{Kernel, Packet},
};
use convoy_fuzz::{Result, Unstructured};

use crate::{kernels, oracles::sealed_by_others};

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn fuzz_seals() {
    let kernels = kernels();
    let mut aeads: Vec<_> = kernels.iter().map(|kernel| kernel.aead()).collect();
    aeads.extend([Aead::ring(), Aead::auto()]);
    convoy_fuzz::run("seals", 600, 1_000, |input| {
        match input.int_in_range(0..=3_u8)? {
            0 => seal_and_open_anything(*input.choose(&kernels)?, input),
            1 => authenticate(*input.choose(&kernels)?, input),
            _ => seal_and_open_data_messages(*input.choose(&aeads)?, input),
        }
    });
}

/// Through the seam: any nonce, any additional data.
fn seal_and_open_anything(kernel: Kernel, input: &mut Unstructured<'_>) -> Result<()> {
    let drawn = batch(input)?;
    let mut aads = Vec::with_capacity(drawn.len());
    for _ in &drawn {
        aads.push(text(input)?);
    }
    let packets = drawn.iter().zip(&aads);
    let packets: Vec<_> = packets
        .map(|(it, aad)| Packet { aad, ..it.packet() })
        .collect();
    let expected: Vec<_> = packets.iter().map(sealed_by_others).collect();
    assert!(kernel.seal(&packets) == expected, "{kernel:?}");

    let received = packets.iter().zip(&expected);
    let received = received.map(|(packet, (text, _))| Packet { text, ..*packet });
    let opened = kernel.open(&received.collect::<Vec<_>>());
    for ((packet, (_, expected)), (text, tag)) in packets.iter().zip(&expected).zip(opened) {
        assert!(text == packet.text && tag == *expected, "{kernel:?}");
    }
    Ok(())
}

/// Through the API: some tags are wrong, and some packets may go by ring.
fn seal_and_open_data_messages(aead: Aead, input: &mut Unstructured<'_>) -> Result<()> {
    let mut drawn = batch(input)?;
    let mut changes = Vec::with_capacity(drawn.len());
    for it in &mut drawn {
        it.nonce[..4].fill(0);
        changes.push(input.ratio(1, 4)?.then_some(input.arbitrary::<u16>()?));
    }
    let keys: Vec<_> = drawn.iter().map(|it| Key::new(&it.key)).collect();
    let expected = drawn.iter().map(|it| {
        let (mut sealed, tag) = sealed_by_others(&it.packet());
        sealed.extend(tag);
        sealed
    });
    let expected: Vec<_> = expected.collect();

    let mut sealed: Vec<_> = drawn.iter().map(|it| padded(&it.text)).collect();
    let slots = drawn.iter().zip(&mut sealed).zip(&keys);
    if input.arbitrary()? {
        let slots = slots.map(|((it, sealed), key)| Seal::new(key, it.counter(), &it.text, sealed));
        aead.seal(&mut slots.map(|slot| slot.expect("it fits")).collect::<Vec<_>>());
    } else {
        let slots = slots.map(|((it, sealed), key)| SealInPlace::new(key, it.counter(), sealed));
        aead.seal_in_place(&mut slots.map(|slot| slot.expect("it fits")).collect::<Vec<_>>());
    }
    assert!(sealed == expected, "{aead:?}");

    for (sealed, change) in sealed.iter_mut().zip(&changes) {
        let bits = 8 * sealed.len();
        if let Some(bit) = change.map(|bit| usize::from(bit) % bits) {
            sealed[bit / 8] ^= 1 << (bit % 8);
        }
    }
    let mut opened: Vec<_> = drawn.iter().map(|it| vec![0xee; it.text.len()]).collect();
    let slots = drawn.iter().zip(&sealed).zip(&mut opened).zip(&keys);
    let slots = slots.map(|(((it, sealed), opened), key)| {
        Open::new(key, it.counter(), sealed, opened).expect("it fits")
    });
    let outcome = aead.open(&mut slots.collect::<Vec<_>>());
    for (n, opened) in opened.iter().enumerate() {
        assert_eq!(outcome.is_authentic(n), changes[n].is_none(), "{aead:?}");
        match changes[n] {
            None => assert!(*opened == drawn[n].text, "{aead:?}"),
            Some(_) => assert!(opened.iter().all(|byte| *byte == 0), "{aead:?}"),
        }
    }
    Ok(())
}

/// Poly1305 with chosen one-time keys and blocks.
fn authenticate(kernel: Kernel, input: &mut Unstructured<'_>) -> Result<()> {
    let (mut keys, mut messages) = ([[0; 32]; SLOTS], [const { Vec::new() }; SLOTS]);
    for (key, message) in keys.iter_mut().zip(&mut messages) {
        let (r, s) = (number(input)?, number(input)?);
        key[..16].copy_from_slice(&r.to_le_bytes());
        key[16..].copy_from_slice(&s.to_le_bytes());
        for _ in 0..input.int_in_range(0..=8)? {
            message.extend(number(input)?.to_le_bytes());
        }
    }
    let tags = kernel.poly1305(&keys, messages.each_ref().map(|message| &message[..]));
    for n in 0..SLOTS {
        let expected = Poly1305::new(&keys[n].into()).compute_unpadded(&messages[n]);
        assert_eq!(tags[n][..], expected[..], "{kernel:?}");
    }
    Ok(())
}

struct Drawn {
    key: [u8; 32],
    nonce: [u8; 12],
    text: Vec<u8>,
}

impl Drawn {
    fn counter(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|n| self.nonce[4 + n]))
    }

    fn packet(&self) -> Packet<'_> {
        Packet {
            key: self.key,
            nonce: self.nonce,
            aad: &[],
            text: &self.text,
        }
    }
}

/// Up to 16 packets, of which neighbours often have the same key.
fn batch(input: &mut Unstructured<'_>) -> Result<Vec<Drawn>> {
    let (mut batch, mut key, mut nonce) = (Vec::with_capacity(SLOTS), [0; 32], [0; 12]);
    for _ in 0..input.int_in_range(0..=SLOTS)? {
        if input.ratio(1, 3)? {
            fill(input, &mut key)?;
        }
        fill(input, &mut nonce)?;
        let text = text(input)?;
        batch.push(Drawn { key, nonce, text });
    }
    Ok(batch)
}

/// A text of a few bytes, of a packet, or rarely of a jumbo packet.
fn text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let longest = match input.arbitrary()? {
        0..=199_u8 => 130,
        200..=253 => 1_500,
        _ => 10_000,
    };
    let mut text = vec![0; input.int_in_range(0..=longest)?];
    fill(input, &mut text)?;
    Ok(text)
}

/// Repeats some bytes of input.
fn fill(input: &mut Unstructured<'_>, bytes: &mut [u8]) -> Result<()> {
    let mut repeated = [0; 32];
    let repeated = &mut repeated[..input.int_in_range(1..=32)?];
    input.fill_buffer(repeated)?;
    for (byte, from) in bytes.iter_mut().zip(repeated.iter().cycle()) {
        *byte = *from;
    }
    Ok(())
}

fn padded(text: &[u8]) -> Vec<u8> {
    let mut padded = Vec::with_capacity(text.len() + TAG);
    padded.extend(text);
    padded.resize(text.len() + TAG, 0);
    padded
}

/// Few bytes of input make numbers with long runs of equal bits.
fn number(input: &mut Unstructured<'_>) -> Result<u128> {
    let (start, bits, add): (u8, u8, i8) = input.arbitrary()?;
    let run = u128::MAX >> (bits % 128);
    Ok(run
        .rotate_left((start % 128).into())
        .wrapping_add_signed(add.into()))
}
