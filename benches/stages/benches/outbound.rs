//! A packet through the state machine: routing, padding, encryption; the datagram is discarded. For comparison,
//! encryption alone.

use convoy_proto::Staging;
use convoy_stages::{NOW, Nowhere, Packet, THERE, connected};
use divan::{Bencher, black_box, counter::BytesCount};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::each;

pub(crate) const LENGTHS: [usize; 3] = [64, 512, 1420];

#[divan::bench(args = LENGTHS)]
fn encapsulate(bencher: Bencher<'_, '_>, len: usize) {
    let (mut here, _) = connected();
    let mut packet = Packet::new(THERE.inner(), len);
    let mut staging = Staging::default();
    each(bencher, BytesCount::new(len), || {
        here.handle_outbound(&mut Some(&mut packet), NOW, &mut staging, &mut Nowhere)
    });
}

#[divan::bench(args = LENGTHS)]
fn seal(bencher: Bencher<'_, '_>, len: usize) {
    let key = key();
    let mut bytes = vec![7; len];
    each(bencher, BytesCount::new(len), || {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_separate_tag(nonce, Aad::empty(), black_box(&mut bytes))
    });
}

/// The cipher of WireGuard's data messages, with an arbitrary key.
pub(crate) fn key() -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]);
    LessSafeKey::new(key.expect("32 bytes are a key"))
}
