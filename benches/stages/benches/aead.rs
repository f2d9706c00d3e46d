//! Seals batches of packets in place and opens them: as the daemon does on this CPU, and with ring alone.

use convoy_aead::{Aead, Key, Open, SLOTS, SealInPlace, TAG};
use divan::{Bencher, counter::ItemsCount};

use crate::each;

const PACKETS: [usize; 5] = [16, 8, 6, 4, 1];
const LENGTHS: [usize; 4] = [64, 512, 1420, 8920];

/// Data mixed with acknowledgements of the other direction.
const MIXED: [usize; SLOTS] = [
    1420, 1420, 96, 1420, 1420, 96, 1420, 1420, 96, 1420, 1420, 96, 1420, 1420, 96, 512,
];

trait Implementation {
    const AEAD: fn() -> Aead;
}

struct Auto;

impl Implementation for Auto {
    const AEAD: fn() -> Aead = Aead::auto;
}

struct Ring;

impl Implementation for Ring {
    const AEAD: fn() -> Aead = Aead::ring;
}

#[divan::bench(types = [Auto, Ring], consts = LENGTHS, args = PACKETS)]
fn seal<I: Implementation, const LEN: usize>(bencher: Bencher<'_, '_>, packets: usize) {
    seal_all::<I>(bencher, &[LEN; SLOTS][..packets]);
}

#[divan::bench(types = [Auto, Ring], consts = LENGTHS, args = PACKETS)]
fn open<I: Implementation, const LEN: usize>(bencher: Bencher<'_, '_>, packets: usize) {
    open_all::<I>(bencher, &[LEN; SLOTS][..packets]);
}

#[divan::bench(types = [Auto, Ring])]
fn seal_mixed<I: Implementation>(bencher: Bencher<'_, '_>) {
    seal_all::<I>(bencher, &MIXED);
}

#[divan::bench(types = [Auto, Ring])]
fn open_mixed<I: Implementation>(bencher: Bencher<'_, '_>) {
    open_all::<I>(bencher, &MIXED);
}

fn seal_all<I: Implementation>(bencher: Bencher<'_, '_>, lens: &[usize]) {
    let (aead, key) = ((I::AEAD)(), Key::new(&[7; 32]));
    let mut packets: Vec<_> = lens.iter().map(|len| vec![7; len + TAG]).collect();
    let seal = || seal_in_place(aead, &key, &mut packets);
    each(bencher, ItemsCount::new(lens.len()), seal);
}

fn open_all<I: Implementation>(bencher: Bencher<'_, '_>, lens: &[usize]) {
    let (aead, key) = ((I::AEAD)(), Key::new(&[7; 32]));
    let mut sealed: Vec<_> = lens.iter().map(|len| vec![7; len + TAG]).collect();
    seal_in_place(aead, &key, &mut sealed);
    let mut opened: Vec<_> = lens.iter().map(|len| vec![0; *len]).collect();
    each(bencher, ItemsCount::new(lens.len()), || {
        let both = sealed.iter().zip(&mut opened);
        let slots = both
            .map(|(sealed, opened)| Open::new(&key, 0, sealed, opened).expect("the lengths fit"));
        aead.open(&mut slots.collect::<Vec<_>>())
    });
}

fn seal_in_place(aead: Aead, key: &Key, packets: &mut [Vec<u8>]) {
    let slots = packets
        .iter_mut()
        .map(|packet| SealInPlace::new(key, 0, packet).expect("the lengths fit"));
    aead.seal_in_place(&mut slots.collect::<Vec<_>>());
}
