//! Checksums of a header, a segment and a whole super-packet.

use convoy_tun::stages;
use divan::{Bencher, black_box, counter::BytesCount};

use crate::each;

#[divan::bench(args = [20, 64, 512, 1380, 65_000])]
fn sum(bencher: Bencher<'_, '_>, len: usize) {
    let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
    // Warm-up: the first use of wide registers takes tens of microseconds, which would mislead divan's planning.
    let _ = stages::checksum(&data);
    let sum = || stages::checksum(black_box(&data));
    each(bencher, BytesCount::new(len), sum);
}
