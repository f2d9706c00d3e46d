//! Nothing allocates per packet once every buffer has been used.

#![allow(clippy::unwrap_used, reason = "a step that fails, fails the test")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use convoy_tun::{
    Coalesce, Offload,
    memory::{self, Kernel},
    spawn_reader, spawn_writer,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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
fn a_hundred_thousand_packets_allocate_next_to_nothing() {
    let (device, kernel) = memory::pair(
        Offload {
            vnet_hdr: true,
            tcp: true,
            udp: true,
        },
        1420,
    )
    .unwrap();
    let mut reader = spawn_reader(&device, 50).unwrap();
    let mut writer = spawn_writer(
        &device,
        Coalesce {
            tcp: true,
            udp: true,
        },
    )
    .unwrap();
    let mut pass = |packets: usize| {
        let mut done = 0;
        while done < packets {
            (0..40).for_each(|_| kernel.send(&[0; 1400]));
            let mut left = 40;
            while left > 0 {
                let Ok(mut outbound) = reader.try_recv() else {
                    std::thread::yield_now();
                    continue;
                };
                left -= outbound.packets();
                let Some(mut inbound) = writer.take(Duration::ZERO) else {
                    continue;
                };
                while let Some(packet) = outbound.next() {
                    let bytes = packet.bytes();
                    inbound.slot(bytes.len()).unwrap().copy_from_slice(bytes);
                    inbound.commit(bytes.len());
                }
                writer.submit(inbound);
            }
            done += 40;
            collect(&kernel);
        }
    };
    pass(20_000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    pass(100_000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // The channel stores batches in blocks of 32, and now and then allocates a block.
    assert!(allocations < 500, "{allocations} allocations");
}

fn collect(kernel: &Kernel) {
    while let Some(raw) = kernel.receive(Duration::ZERO) {
        kernel.recycle(raw);
    }
}
