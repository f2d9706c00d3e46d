//! One bench per stage, in the order of a packet's path. `make bench` runs all of them,
//! `cargo bench -p convoy-stages -- checksum` those of that name.
//!
//! Each passes its work to [`convoy_stages::measured`], whose instructions `make bench-compare` counts.
//! All benches are one program, because linking one takes a minute.

mod checksum;
mod cut;

mod aead;
mod allowed_ips;
mod gso_queue;
mod hashes;
mod outbound;
mod peers;

mod coalesce;
mod inbound;

mod flow_table;
mod hand_over;
mod nat_flows;
mod path;
mod tunnels;

mod uapi;

use std::time::Duration;

use convoy_stages::{measured, packets::FLOW};
use convoy_tun::{Coalesce, Offload};
use divan::{Bencher, counter::IntoCounter};

/// Segments per super-packet and payload per segment, as TCP makes them for an MTU of 1,420.
const SEGMENTS: usize = 46;
const SEGMENT_PAYLOAD: usize = 1380;

/// Features of an in-memory device, its MTU, and how long to wait for a packet from it.
const OFFLOAD: Offload = Offload {
    vnet_hdr: true,
    tcp: true,
    udp: true,
};
const COALESCE: Coalesce = Coalesce {
    tcp: true,
    udp: true,
};
const MTU: u16 = 1420;
const PATIENCE: Duration = Duration::from_secs(5);

/// Benches `stage`, which processes as many items or bytes as `counter` says.
fn each<T>(bencher: Bencher<'_, '_>, counter: impl IntoCounter, mut stage: impl FnMut() -> T) {
    bencher
        .counter(counter)
        .bench_local(|| measured(&mut stage));
}

/// The same with a new input each time.
fn each_of<I, T>(
    bencher: Bencher<'_, '_>,
    counter: impl IntoCounter,
    input: impl FnMut() -> I,
    mut stage: impl FnMut(&mut I) -> T,
) {
    let bencher = bencher.counter(counter).with_inputs(input);
    bencher.bench_local_refs(|input| measured(|| stage(input)));
}

fn main() {
    divan::main();
}
