//! A datagram through the state machine: session lookup, decryption, replay window, allowed IPs. For comparison,
//! decryption alone.

use convoy_stages::{HERE, NOW, Packet, THERE, connected, receive, sealed};
use divan::{Bencher, counter::BytesCount};
use ring::aead::{Aad, Nonce};

use crate::each_of;
use crate::outbound::{LENGTHS, key};

#[divan::bench(args = LENGTHS)]
fn decapsulate(bencher: Bencher<'_, '_>, len: usize) {
    let (mut here, mut there) = connected();
    let mut packet = Packet::between(THERE.inner(), HERE.inner(), len);
    let input = || sealed(&mut there, &mut packet);
    each_of(bencher, BytesCount::new(len), input, |datagram| {
        receive(&mut here, datagram, THERE, NOW)
    });
}

#[divan::bench(args = LENGTHS)]
fn open(bencher: Bencher<'_, '_>, len: usize) {
    let key = key();
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let mut sealed = vec![7; len];
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
        .expect("it fits");
    let input = || sealed.clone();
    each_of(bencher, BytesCount::new(len), input, |sealed| {
        let opened = key.open_in_place(nonce(), Aad::empty(), sealed);
        opened.map(|opened| opened.len())
    });
}
