//! Every length in every lane, with different keys and nonces.

use convoy_aead::seam::Packet;

use crate::{
    kernels,
    oracles::{key, noise, nonce, sealed_by_others},
};

/// Under Miri, only one batch of mixed lengths, which takes a minute.
const LONGEST: usize = if cfg!(miri) { 64 } else { 2_048 };
const STEP: usize = if cfg!(miri) { LONGEST + 1 } else { 1 };

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sixteen_packets_of_each_equal_length() {
    for len in (0..=LONGEST).step_by(STEP) {
        check([len; 16]);
    }
}

#[test]
fn mixed_lengths_with_each_length_in_each_lane() {
    for first in (0..=LONGEST).rev().step_by(STEP) {
        check(std::array::from_fn(|n| (first + n * 131) % (LONGEST + 1)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn samples_up_to_the_longest_datagram_in_each_lane() {
    let samples = [2_049, 4_095, 4_096, 8_920, 16_385, 65_519, 65_535];
    for lane in 0..16 {
        let mut lens = [1_420; 16];
        lens[lane] = samples[lane % samples.len()];
        lens[(lane + 5) % 16] = 0;
        check(lens);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn fewer_than_sixteen_packets() {
    let text = noise(3, 200);
    for count in 0..16 {
        let packets: Vec<_> = (0..count)
            .map(|n| packet(n, &text[..200 - n as usize], &[]))
            .collect();
        compare(&packets);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn additional_data_of_each_length_to_200() {
    let (aad, text) = (noise(1, 216), noise(2, 80));
    for len in 0..=200 {
        let packets: Vec<_> = (0..16)
            .map(|n| packet(n, &text[..5 * n as usize], &aad[..(len + n as usize) % 201]))
            .collect();
        compare(&packets);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn counters_around_each_carry() {
    let text = noise(4, 100);
    for base in [0, u64::from(u32::MAX), u64::MAX - 15, u64::MAX >> 1] {
        let packets: Vec<_> = (0..16_u64)
            .map(|n| Packet {
                key: key(0),
                nonce: nonce(base.saturating_add(n).wrapping_sub(8)),
                aad: &[],
                text: &text,
            })
            .collect();
        compare(&packets);
    }
}

fn check(lens: [usize; 16]) {
    let longest = lens.into_iter().max().unwrap_or(0);
    let text = noise(longest as u64, longest + 16);
    let lane = |n: usize| packet(n as u64, &text[n..n + lens[n]], &[]);
    compare(&std::array::from_fn::<_, 16, _>(lane));
}

fn packet<'a>(n: u64, text: &'a [u8], aad: &'a [u8]) -> Packet<'a> {
    Packet {
        key: key(n),
        nonce: noise(!n, 12).try_into().unwrap(),
        aad,
        text,
    }
}

fn compare(packets: &[Packet<'_>]) {
    let expected: Vec<_> = packets.iter().map(sealed_by_others).collect();
    let lens: Vec<_> = packets.iter().map(|packet| packet.text.len()).collect();
    for kernel in kernels() {
        let sealed = kernel.seal(packets);
        let same: Vec<_> = (0..packets.len())
            .map(|n| sealed[n] == expected[n])
            .collect();
        assert!(same.iter().all(|it| *it), "{kernel:?} {lens:?}: {same:?}");

        let received = packets.iter().zip(&sealed);
        let received: Vec<_> = received
            .map(|(packet, (text, _))| Packet { text, ..*packet })
            .collect();
        for (n, (text, tag)) in kernel.open(&received).into_iter().enumerate() {
            assert!(text == packets[n].text, "{kernel:?} {lens:?}, lane {n}");
            assert_eq!(tag, expected[n].1, "{kernel:?} {lens:?}, lane {n}");
        }
    }
}
