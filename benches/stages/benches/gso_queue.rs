//! Appends one tick's datagrams to the GSO queue and drains it.

use std::net::SocketAddr;

use convoy_gso::{Destination, GsoQueue};
use divan::{Bencher, black_box, counter::ItemsCount};

use crate::each;

/// Datagrams per tick.
const DATAGRAMS: usize = 180;

#[divan::bench(args = [1, 4, 64])]
fn append_and_drain(bencher: Bencher<'_, '_>, destinations: usize) {
    tick(bencher, destinations, |_| 1452);
}

/// Every eighth datagram is an acknowledgement.
#[divan::bench]
fn mixed_lengths(bencher: Bencher<'_, '_>) {
    tick(bencher, 1, |n| if n % 8 == 0 { 96 } else { 1452 });
}

fn tick(bencher: Bencher<'_, '_>, destinations: usize, len: impl Fn(usize) -> usize) {
    let destination = |n: usize| Destination {
        to: SocketAddr::from(([192, 0, 2, n as u8], 51820)),
        source: None,
        ecn: 0,
    };
    let to: Vec<_> = (0..destinations).map(destination).collect();
    let datagram = [7; 1452];
    let mut queue = GsoQueue::default();
    each(bencher, ItemsCount::new(DATAGRAMS), || {
        for n in 0..DATAGRAMS {
            let _ = queue.append(&to[n % destinations], black_box(&datagram[..len(n)]));
        }
        while let Some(batch) = queue.front() {
            black_box(batch.unsent());
            queue.pop_front();
        }
    });
}
