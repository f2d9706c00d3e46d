//! A datagram through the state machine: its session, decryption, replay window, allowed IPs.
//! Beside it what decrypting alone takes.

use convoy_proto::STACK_BUFFER_BYTES;
use convoy_stages::{Host, Kept, NOW, Packet, measured, receive, shake_hands};
use divan::{Bencher, counter::BytesCount};
use ring::aead::{Aad, Nonce};

use crate::outbound::key;

const HERE: Host = Host(1);
const THERE: Host = Host(2);
const LENGTHS: [usize; 3] = [64, 512, 1420];

#[divan::bench(args = LENGTHS)]
fn decapsulate(bencher: Bencher<'_, '_>, len: usize) {
    let mut here = HERE.node([THERE]);
    let mut spokes = [(THERE, THERE.node([HERE]))];
    shake_hands((HERE, &mut here), &mut spokes);
    let [(_, there)] = &mut spokes;
    let mut packet = Packet::between(THERE.inner(), HERE.inner(), len);
    let mut buffer = [0; STACK_BUFFER_BYTES];
    bencher
        .counter(BytesCount::new(len))
        .with_inputs(|| {
            let mut datagram = Kept::default();
            there.handle_outbound(&mut packet, NOW, &mut buffer, &mut datagram);
            datagram.0
        })
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
