//! Hands fifty packets from the reader's thread to the event loop, and from the event loop to the writer's thread,
//! including the wake-up of the receiving thread.

use std::time::Duration;

use convoy_stages::packets::unsegmented;
use convoy_tun::{Coalesce, MAX_BATCH_PACKETS, TryRecv, memory, spawn_reader, spawn_writer};
use divan::{Bencher, counter::ItemsCount};

use crate::{FLOW, MTU, OFFLOAD, PATIENCE, each};

#[divan::bench]
fn from_the_reader(bencher: Bencher<'_, '_>) {
    let (device, kernel) = memory::pair(OFFLOAD, MTU).expect("a descriptor");
    let mut reader = spawn_reader(&device, MAX_BATCH_PACKETS).expect("a thread");
    let raw = unsegmented(&FLOW.udp(usize::from(MTU)));
    each(bencher, ItemsCount::new(MAX_BATCH_PACKETS), || {
        for _ in 0..MAX_BATCH_PACKETS {
            kernel.send(&raw);
        }
        let mut packets = 0;
        while packets < MAX_BATCH_PACKETS {
            match reader.try_recv() {
                Ok(batch) => packets += batch.packets(),
                Err(TryRecv::Empty) => std::thread::yield_now(),
                Err(TryRecv::Closed(exit)) => panic!("the reader ended: {exit:?}"),
            }
        }
    });
}

#[divan::bench]
fn to_the_writer(bencher: Bencher<'_, '_>) {
    let (device, kernel) = memory::pair(OFFLOAD, MTU).expect("a descriptor");
    let mut writer = spawn_writer(&device, Coalesce::default()).expect("a thread");
    let packet = FLOW.udp(usize::from(MTU));
    each(bencher, ItemsCount::new(MAX_BATCH_PACKETS), || {
        let batch = writer.take(Duration::ZERO);
        let mut batch = batch.expect("an idle writer has room");
        for _ in 0..MAX_BATCH_PACKETS {
            let slot = batch.slot(packet.len()).expect("room");
            slot.copy_from_slice(&packet);
            batch.commit(packet.len());
        }
        writer.submit(batch);
        for _ in 0..MAX_BATCH_PACKETS {
            kernel.recycle(kernel.receive(PATIENCE).expect("a packet is written"));
        }
        while !writer.is_idle() {
            std::thread::yield_now();
        }
    });
}
