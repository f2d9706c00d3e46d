//! Poly1305 with chosen one-time keys that take limbs, carries and the last reduction to their limits.

use ::poly1305::{Poly1305, universal_hash::KeyInit};
use proptest::prelude::*;

use crate::kernels;

type Message = Vec<u128>;

/// Numbers around the edges of limbs, of blocks and of p.
fn edges() -> Vec<u128> {
    let powers = [
        0, 1, 20, 24, 26, 32, 43, 44, 45, 52, 64, 87, 88, 89, 104, 127,
    ];
    let powers = powers.map(|bit| 1_u128 << bit);
    let around = powers
        .into_iter()
        .flat_map(|power| [power - 1, power, power + 1, power.wrapping_neg()]);
    let others = [
        u128::MAX,
        u128::MAX - 1,
        u128::MAX - 4,
        u128::MAX - 5,
        !0 << 64,
    ];
    around.chain(others).collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn every_edge_as_r_and_as_each_block_of_a_message() {
    let edges = edges();
    for r in &edges {
        for chunk in edges.chunks(16) {
            let of = |n: usize| chunk[n % chunk.len()];
            check(
                [*r; 16],
                [u128::MAX; 16],
                std::array::from_fn(|n| vec![of(n); 4]),
            );
            check(
                [*r; 16],
                [0; 16],
                std::array::from_fn(|n| vec![u128::MAX, of(n)]),
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn all_ones_for_a_thousand_blocks() {
    let rs = std::array::from_fn(|n| u128::MAX >> (8 * n));
    check(
        rs,
        [u128::MAX; 16],
        std::array::from_fn(|_| vec![u128::MAX; 1_000]),
    );
}

/// With r = 1 the accumulator is the sum of three blocks plus 3 · 2¹²⁸. The blocks make it p + n − 8.
#[test]
fn the_last_reduction_around_p() {
    let messages = std::array::from_fn(|n| {
        let sum = (n as u128).wrapping_sub(8 + 5);
        vec![sum / 3, sum / 3, sum - sum / 3 * 2]
    });
    check([1; 16], [0; 16], messages.clone());
    check([1; 16], [u128::MAX; 16], messages);
}

#[test]
fn a_zero_r_gives_s() {
    let s = std::array::from_fn(|n| u128::MAX / (n as u128 + 1));
    let keys = s.map(|s| one_time_key(0, s));
    for kernel in kernels() {
        let tags = kernel.poly1305(&keys, [&[0xa5; 48]; 16]);
        assert_eq!(tags.map(u128::from_le_bytes), s);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 2_000 }))]

    #[test]
    fn edges_and_random_numbers_in_any_mixture(
        lanes in prop::array::uniform16((number(), number(), prop::collection::vec(number(), 0..9)))
    ) {
        check(
            lanes.each_ref().map(|lane| lane.0),
            lanes.each_ref().map(|lane| lane.1),
            lanes.map(|lane| lane.2),
        );
    }
}

fn number() -> impl Strategy<Value = u128> {
    prop_oneof![prop::sample::select(edges()), any::<u128>()]
}

fn check(rs: [u128; 16], ss: [u128; 16], messages: [Message; 16]) {
    let keys: [_; 16] = std::array::from_fn(|n| one_time_key(rs[n], ss[n]));
    let messages = messages.map(|blocks| {
        let blocks = blocks.into_iter().flat_map(u128::to_le_bytes);
        blocks.collect::<Vec<u8>>()
    });
    let expected: [_; 16] = std::array::from_fn(|n| -> [u8; 16] {
        let mac = Poly1305::new(&keys[n].into());
        mac.compute_unpadded(&messages[n]).into()
    });
    for kernel in kernels() {
        let tags = kernel.poly1305(&keys, messages.each_ref().map(|it| &it[..]));
        assert_eq!(tags, expected, "{kernel:?} {rs:x?} {ss:x?} {messages:x?}");
    }
}

fn one_time_key(r: u128, s: u128) -> [u8; 32] {
    let both = [r.to_le_bytes(), s.to_le_bytes()].concat();
    both.try_into().unwrap()
}
