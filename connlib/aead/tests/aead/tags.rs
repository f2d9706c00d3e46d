//! Packets whose tag is wrong.

use convoy_aead::{Aead, Key, Open, Opened, SLOTS, SealInPlace, TAG};

use crate::{
    kernels,
    oracles::{key, noise},
};

const LEN: usize = 1_420;

/// The kernels for every batch, then ring.
fn implementations() -> Vec<Aead> {
    let kernels = kernels().into_iter().map(|kernel| kernel.aead());
    kernels.chain([Aead::ring()]).collect()
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn a_wrong_tag_in_any_slot_wipes_that_slot_only() {
    for aead in implementations() {
        for slot in 0..SLOTS {
            let mut batch = Batch::sealed(aead);
            batch.sealed[slot][LEN + slot] ^= 1 << (slot % 8);
            let opened = batch.open(aead);
            for n in 0..SLOTS {
                assert_eq!(opened.is_authentic(n), n != slot);
                let expected = if n == slot {
                    &[0; LEN]
                } else {
                    &batch.plain[n][..]
                };
                assert!(
                    batch.opened[n] == expected,
                    "{aead:?}: slot {n}, wrong is {slot}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn one_changed_bit_anywhere_is_noticed() {
    for aead in implementations() {
        for bit in (0..8 * (LEN + TAG)).step_by(71) {
            let mut batch = Batch::sealed(aead);
            batch.sealed[bit % SLOTS][bit / 8] ^= 1 << (bit % 8);
            let opened = batch.open(aead);
            assert!((0..SLOTS).all(|n| opened.is_authentic(n) == (n != bit % SLOTS)));
            assert_eq!(batch.opened[bit % SLOTS], [0; LEN]);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn another_counter_or_another_key_is_noticed() {
    for aead in implementations() {
        let mut batch = Batch::sealed(aead);
        batch.counters[3] ^= 1 << 40;
        batch.keys.swap(5, 6);
        let opened = batch.open(aead);
        assert!((0..SLOTS).all(|n| opened.is_authentic(n) != matches!(n, 3 | 5 | 6)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn all_tags_wrong_wipes_all() {
    for aead in implementations() {
        let mut batch = Batch::sealed(aead);
        batch
            .sealed
            .iter_mut()
            .for_each(|sealed| sealed[LEN + 15] ^= 0x80);
        let opened = batch.open(aead);
        assert!((0..SLOTS).all(|n| !opened.is_authentic(n)));
        assert!(batch.opened.iter().all(|opened| *opened == [0; LEN]));
    }
}

struct Batch {
    keys: Vec<Key>,
    counters: Vec<u64>,
    plain: Vec<Vec<u8>>,
    sealed: Vec<Vec<u8>>,
    opened: Vec<Vec<u8>>,
}

impl Batch {
    fn sealed(aead: Aead) -> Self {
        let keys: Vec<_> = (0..SLOTS as u64).map(|n| Key::new(&key(n))).collect();
        let counters: Vec<_> = (0..SLOTS as u64).map(|n| n << 33).collect();
        let plain: Vec<_> = (0..SLOTS as u64).map(|n| noise(n, LEN)).collect();
        let mut sealed: Vec<_> = plain
            .iter()
            .map(|it| [it, &[0; TAG][..]].concat())
            .collect();
        let slots = sealed.iter_mut().enumerate();
        let slots = slots.map(|(n, it)| SealInPlace::new(&keys[n], counters[n], it).unwrap());
        aead.seal_in_place(&mut slots.collect::<Vec<_>>());
        Self {
            keys,
            counters,
            plain,
            sealed,
            opened: vec![vec![0xee; LEN]; SLOTS],
        }
    }

    fn open(&mut self, aead: Aead) -> Opened {
        let slots = self.sealed.iter().zip(&mut self.opened).enumerate();
        let slots = slots.map(|(n, (sealed, opened))| {
            Open::new(&self.keys[n], self.counters[n], sealed, opened).unwrap()
        });
        aead.open(&mut slots.collect::<Vec<_>>())
    }
}
