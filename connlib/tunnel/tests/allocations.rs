//! Nothing allocates per packet after warm-up: not in the loop, nor in the two TUN threads.
//!
//! The only test of its program, as it counts the allocations of all threads but its own.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use common::*;
use convoy_tunnel::Options;

/// Packets that pass each way while allocations are counted.
const PACKETS: usize = 20_000;
/// Tolerated allocations: now and then a block of a channel, but none per packet.
const TOLERATED: u64 = PACKETS as u64 / 100;
/// After such a pause, which a busy machine makes as well, an event loop reads its device itself.
const PAUSE: Duration = Duration::from_millis(2);
/// Allocations with which tokio begins and ends to watch the devices of both.
const EACH_PAUSE: u64 = 4;

thread_local! {
    /// Whether this thread is the test's own.
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_EXEMPT.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: our caller upholds the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: our caller upholds the allocator's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn packets_in_both_directions_allocate_nothing_after_warm_up() {
    IS_EXEMPT.set(true);
    let (a, b) = connected(&Options::default());
    let there = udp(a.inner, b.inner, &[7; 1000]);
    let back = udp(b.inner, a.inner, &[8; 100]);
    let train = tcp_super_packet(a.inner, b.inner, 1380, &[9; 20 * 1380]);
    let exchange = |packets: usize| {
        for _ in 0..packets / 50 {
            for _ in 0..15 {
                a.send(&there);
            }
            a.kernel.send(&train);
            for _ in 0..50 {
                b.send(&back);
            }
            drain(&b, 15 * 1000 + 20 * 1380);
            drain(&a, 50 * 100);
        }
    };
    exchange(PACKETS);
    let (before, begin) = (ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
    exchange(PACKETS);
    let pauses = begin.elapsed().div_duration_f64(PAUSE) as u64;
    let counted = ALLOCATIONS.load(Ordering::Relaxed) - before;
    eprintln!("{counted} allocations for {} packets", 2 * PACKETS);
    let tolerated = TOLERATED + pauses * EACH_PAUSE;
    assert!(counted <= tolerated, "{counted} allocations > {tolerated}");
}

/// Takes writes until `payload` bytes of payload have arrived.
fn drain(end: &End, payload: usize) {
    let mut seen = 0;
    while seen < payload {
        let raw = end.kernel.receive(PATIENCE).expect("the rest arrives");
        let header = if raw[VNET + 9] == 6 { 40 } else { 28 };
        seen += raw.len() - VNET - header;
        end.kernel.recycle(raw);
    }
}
