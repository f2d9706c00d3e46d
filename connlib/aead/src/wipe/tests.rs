#![allow(unsafe_code)]

use std::{collections::HashSet, hint::black_box};

use crate::{Key, SLOTS, SealInPlace, TAG, seam::Kernel};

const KEY: [u8; 32] = *b"a key that must not stay around!";
/// Deeper than a batch uses, and less than the stack of a test has left.
const SEARCHED: usize = 256 << 10;

#[test]
#[cfg_attr(miri, ignore = "reads below the stack; Miri cannot run ring")]
fn a_batch_leaves_neither_key_nor_key_stream_on_the_stack() {
    // The kernel of plain arrays, which is for tests only, uses more of it.
    for kernel in Kernel::all().into_iter().skip(1) {
        let (aead, key) = (kernel.aead(), Key::new(&KEY));
        // Zeros, so that the ciphertext is the key stream.
        let mut packets = vec![[0; 256 + TAG]; SLOTS];
        let slots = packets.iter_mut().zip(0..);
        let slots = slots.map(|(packet, n)| SealInPlace::new(&key, n, packet).unwrap());
        let mut slots: Vec<_> = slots.collect();
        clear_stack();
        aead.seal_in_place(&mut slots);
        let left = stack_below();

        // As rows, as the transposed state has it in all lanes, and as 64 bits of the key stream.
        let rows = KEY.windows(8).map(<[u8]>::to_vec);
        let words = KEY.as_chunks::<4>().0.iter().map(|word| word.repeat(2));
        let streams = packets.iter().flat_map(|packet| packet[..256].chunks(8));
        let secrets: HashSet<_> = rows
            .chain(words)
            .chain(streams.map(<[u8]>::to_vec))
            .collect();
        let found = left
            .windows(8)
            .filter(|bytes| secrets.contains(*bytes))
            .count();
        assert_eq!(found, 0, "{kernel:?}");
    }
}

#[inline(never)]
fn clear_stack() {
    black_box([0_u8; SEARCHED].as_mut_slice());
}

/// What lies below the caller's frame.
#[inline(never)]
fn stack_below() -> Vec<u8> {
    let marker = 0_u8;
    let top = black_box(&raw const marker).addr();
    let mut below = Vec::with_capacity(SEARCHED);
    for address in top - SEARCHED..top {
        // SAFETY: the address is on this thread's stack, where `clear_stack` wrote: the page is mapped, and
        // any byte there can be read.
        let byte = unsafe { std::ptr::without_provenance::<u8>(address).read_volatile() };
        below.push(byte);
    }
    below
}
