//! A packet through the state machine: routing, padding, encryption; the datagram is thrown away.

use convoy_benches::{Host, NOW, Nowhere, Packet, shake_hands};
use convoy_proto::STACK_BUFFER_BYTES;
use divan::{Bencher, counter::BytesCount};

const HERE: Host = Host(1);
const THERE: Host = Host(2);

fn main() {
    divan::main();
}

#[divan::bench(args = [64, 512, 1420])]
fn encapsulate(bencher: Bencher<'_, '_>, len: usize) {
    let mut here = HERE.node([THERE]);
    shake_hands((HERE, &mut here), &mut [(THERE, THERE.node([HERE]))]);
    let mut packet = Packet::new(THERE.inner(), len);
    let mut buffer = [0; STACK_BUFFER_BYTES];
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        here.handle_outbound(&mut packet, NOW, &mut buffer, &mut Nowhere);
    });
}
