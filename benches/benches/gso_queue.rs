//! Appending a tick's datagrams to the GSO queue, and draining it.

use std::net::SocketAddr;

use convoy_gso::{Destination, GsoQueue};
use divan::{Bencher, black_box, counter::ItemsCount};

/// Datagrams in one tick.
const DATAGRAMS: usize = 180;

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 4, 64])]
fn append_and_drain(bencher: Bencher<'_, '_>, destinations: usize) {
    let to: Vec<_> = (0..destinations).map(destination).collect();
    let datagram = [7; 1452];
    let mut queue = GsoQueue::default();
    bencher.counter(ItemsCount::new(DATAGRAMS)).bench_local(|| {
        for n in 0..DATAGRAMS {
            let _ = queue.append(&to[n % destinations], black_box(&datagram));
        }
        while let Some(batch) = queue.front() {
            black_box(batch.unsent());
            queue.pop_front();
        }
    });
}

#[divan::bench]
fn mixed_lengths(bencher: Bencher<'_, '_>) {
    let to = destination(1);
    let datagram = [7; 1452];
    let mut queue = GsoQueue::default();
    bencher.counter(ItemsCount::new(DATAGRAMS)).bench_local(|| {
        for n in 0..DATAGRAMS {
            // Every eighth is an acknowledgement.
            let len = if n % 8 == 0 { 96 } else { 1452 };
            let _ = queue.append(&to, black_box(&datagram[..len]));
        }
        while queue.front().is_some() {
            queue.pop_front();
        }
    });
}

fn destination(n: usize) -> Destination {
    Destination {
        to: SocketAddr::from(([192, 0, 2, n as u8], 51820)),
        from: None,
        ecn: 0,
    }
}
