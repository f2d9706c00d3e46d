//! A datagram through the state machine: session lookup, decryption, replay window, allowed IPs. For comparison,
//! decryption alone.

use convoy_stages::{HERE, NOW, Packet, THERE, connected, measured, receive, sealed};
use divan::{Bencher, counter::BytesCount};
use ring::aead::{Aad, Nonce};

use crate::outbound::{LENGTHS, key};

#[divan::bench(args = LENGTHS)]
fn decapsulate(bencher: Bencher<'_, '_>, len: usize) {
    let (mut here, mut there) = connected();
    let mut packet = Packet::between(THERE.inner(), HERE.inner(), len);
    bencher
        .counter(BytesCount::new(len))
        .with_inputs(|| sealed(&mut there, &mut packet))
        .bench_local_refs(|datagram| measured(|| receive(&mut here, datagram, THERE, NOW)));
}

#[divan::bench(args = LENGTHS)]
fn open(bencher: Bencher<'_, '_>, len: usize) {
    let key = key();
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let mut sealed = vec![7; len];
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
        .expect("it fits");
    bencher
        .counter(BytesCount::new(len))
        .with_inputs(|| sealed.clone())
        .bench_local_refs(|sealed| {
            measured(|| {
                key.open_in_place(nonce(), Aad::empty(), sealed)
                    .map(|opened| opened.len())
            })
        });
}
