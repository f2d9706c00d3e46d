//! The API, for each implementation, and the choice of the implementation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use convoy_aead::{
    Aead, Key, MAX_PACKET, Open, SLOTS, Seal, SealInPlace, TAG, WhyRing, WrongLength, seam::Packet,
};

use crate::{
    kernels,
    oracles::{key, noise, nonce, sealed_by_others},
};

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn all_ways_to_seal_and_open_agree_in_every_implementation() {
    let lens = [[1_420; 16], [64; 16], [0; 16]];
    let mixed = [
        [
            40, 1_420, 1_420, 9_000, 52, 0, 1, 64, 63, 65, 1_420, 1_420, 52, 52, 52, MAX_PACKET,
        ],
        [
            0, 1, 2, 3, 4, 5, 6, 7, 1_420, 1_420, 1_420, 1_420, 1_420, 1_420, 1_420, 1_420,
        ],
    ];
    let aeads = kernels().into_iter().map(|kernel| kernel.aead());
    for aead in aeads.chain([Aead::ring(), Aead::auto()]) {
        for lens in lens.iter().chain(&mixed) {
            for count in [0, 1, 2, 4, 6, 7, 8, 15, 16] {
                check(aead, &lens[..count]);
            }
        }
    }
}

fn check(aead: Aead, lens: &[usize]) {
    let keys: Vec<_> = (0..SLOTS as u64).map(|n| Key::new(&key(n % 3))).collect();
    let counter = |n: usize| u64::from(u32::MAX) - 7 + n as u64;
    let plain: Vec<_> = lens.iter().map(|len| noise(*len as u64, *len)).collect();

    let mut sealed: Vec<_> = plain.iter().map(|it| vec![0; it.len() + TAG]).collect();
    let slots = plain.iter().zip(&mut sealed).enumerate();
    let slots = slots.map(|(n, (plain, sealed))| Seal::new(&keys[n], counter(n), plain, sealed));
    aead.seal(&mut slots.collect::<Result<Vec<_>, _>>().unwrap());

    let mut in_place: Vec<_> = plain
        .iter()
        .map(|it| [it, &[0; TAG][..]].concat())
        .collect();
    let slots = in_place.iter_mut().enumerate();
    let slots = slots.map(|(n, packet)| SealInPlace::new(&keys[n], counter(n), packet));
    aead.seal_in_place(&mut slots.collect::<Result<Vec<_>, _>>().unwrap());
    assert!(in_place == sealed, "{aead:?} {lens:?}");

    for (n, plain) in plain.iter().enumerate() {
        let (ciphertext, tag) = sealed_by_others(&Packet {
            key: key(n as u64 % 3),
            nonce: nonce(counter(n)),
            aad: &[],
            text: plain,
        });
        assert!(
            sealed[n] == [&ciphertext[..], &tag].concat(),
            "{aead:?} {lens:?} {n}"
        );
    }

    let mut opened: Vec<_> = plain.iter().map(|it| vec![0; it.len()]).collect();
    let slots = sealed.iter().zip(&mut opened).enumerate();
    let slots = slots.map(|(n, (sealed, opened))| Open::new(&keys[n], counter(n), sealed, opened));
    let outcome = aead.open(&mut slots.collect::<Result<Vec<_>, _>>().unwrap());
    assert!((0..20).all(|n| outcome.is_authentic(n) == (n < lens.len())));
    assert!(opened == plain, "{aead:?} {lens:?}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn lengths_that_do_not_fit_are_refused() {
    let key = Key::new(&[7; 32]);
    let (mut memory, other) = (vec![0; MAX_PACKET + TAG + 1], vec![0; MAX_PACKET + 1]);
    let mut seal = |plain, sealed| Seal::new(&key, 0, &other[..plain], &mut memory[..sealed]).err();
    for (plain, sealed) in [(0, 15), (1, 16), (0, 17), (MAX_PACKET + 1, MAX_PACKET + 17)] {
        assert_eq!(seal(plain, sealed), Some(WrongLength));
    }
    assert_eq!(seal(0, 16), None);
    assert_eq!(seal(MAX_PACKET, MAX_PACKET + 16), None);
    for len in [15, MAX_PACKET + 17] {
        assert!(SealInPlace::new(&key, 0, &mut memory[..len]).is_err());
    }
    assert!(Open::new(&key, 0, &other[..15], &mut []).is_err());
    assert!(Open::new(&key, 0, &other[..33], &mut memory[..16]).is_err());
}

#[test]
#[should_panic(expected = "at most 16")]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn a_seventeenth_slot_is_a_mistake_of_the_caller() {
    let key = Key::new(&[7; 32]);
    let mut packets = [[0; 16]; 17];
    let slots = packets
        .iter_mut()
        .map(|packet| SealInPlace::new(&key, 0, packet).unwrap());
    Aead::ring().seal_in_place(&mut slots.collect::<Vec<_>>());
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn auto_takes_the_batch_exactly_where_the_cpu_has_it() {
    let (auto, ring) = (Aead::auto(), Aead::ring());
    match kernels().len() {
        1 => {
            assert_eq!(auto.implementation(), "ring");
            assert_eq!(auto.why_ring(), Some(WhyRing::NoAvx512));
        }
        _ => {
            assert_eq!(auto.implementation(), "batch (AVX-512)");
            assert_eq!(auto.why_ring(), None);
        }
    }
    assert_eq!(ring.implementation(), "ring");
    assert_eq!(ring.why_ring(), Some(WhyRing::Chosen));
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn a_packet_cannot_be_sealed_twice() {
    for aead in [Aead::auto(), Aead::ring()] {
        let key = Key::new(&[7; 32]);
        let mut packet = [7; 64 + TAG];
        let seals_twice = AssertUnwindSafe(|| {
            let mut slots = [SealInPlace::new(&key, 0, &mut packet).unwrap()];
            aead.seal_in_place(&mut slots);
            aead.seal_in_place(&mut slots);
        });
        assert!(catch_unwind(seals_twice).is_err());
        assert_ne!(packet[..64], [7; 64], "the ciphertext stays");
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot run ring")]
fn debug_output_shows_no_text() {
    let key = Key::new(&[7; 32]);
    let mut packet = [0xab; 5 + TAG];
    let slot = SealInPlace::new(&key, 3, &mut packet).unwrap();
    assert_eq!(
        format!("{slot:?}"),
        "SealInPlace { counter: 3, len: 5, .. }"
    );
}
