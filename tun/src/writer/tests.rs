use std::time::Duration;

use super::*;
use crate::{
    FailedPackets, Offload,
    device::memory::{self, Fault, Kernel},
    testing::{Headers, payload},
};

const OFFLOAD: Offload = Offload {
    vnet_hdr: true,
    tcp: true,
    udp: true,
};
const TCP: Coalesce = Coalesce {
    tcp: true,
    udp: false,
};
const SOON: Duration = Duration::from_secs(10);

#[test]
fn batches_are_written_in_order_by_either_thread() {
    let (mut writer, kernel) = start();
    let headers = Headers::new(true, false);
    let mut sent = Vec::new();
    for nth in 0..500usize {
        let mut batch = take(&mut writer);
        for _ in 0..=(nth % 40) {
            let packet = headers.packet(&sent.len().to_be_bytes());
            push(&mut batch, &packet);
            sent.push(packet);
        }
        if nth % 5 == 0 {
            writer.write(batch);
        } else {
            writer.submit(batch);
        }
    }
    for packet in &sent {
        assert_eq!(&kernel.receive(SOON).unwrap()[10..], packet);
    }
    until(|| writer.is_idle());
    assert_eq!(writer.counters().packets_per_write[1], sent.len() as u64);
}

#[test]
fn several_batches_are_written_in_order_once_the_thread_is_woken() {
    let (mut writer, kernel) = start();
    for _ in 0..100 {
        for nth in 0..3 {
            let mut batch = loop {
                match writer.take(Duration::ZERO) {
                    Some(batch) => break batch,
                    None => std::thread::yield_now(),
                }
            };
            push(&mut batch, &[nth; 100]);
            writer.enqueue(batch);
        }
        writer.wake();
        let firsts = [0; 3].map(|_| kernel.receive(SOON).unwrap()[10]);
        assert_eq!(firsts, [0, 1, 2]);
    }
}

#[test]
fn a_sparse_packet_is_written_at_once_by_the_caller() {
    let (mut writer, kernel) = start();
    write(&mut writer, &[vec![1; 100]]);
    assert!(kernel.receive(Duration::ZERO).is_some());
    assert!(writer.is_idle());
    assert_eq!(writer.counters().writes, 1);
}

#[test]
fn a_batch_never_overtakes_one_that_is_on_its_way() {
    let (mut writer, kernel) = start();
    kernel.hold_writes(true);
    submit(&mut writer, &vec![vec![1; 100]; 10]);
    assert!(!writer.is_idle());
    write(&mut writer, &[vec![2; 100]]);
    assert!(kernel.receive(Duration::from_millis(5)).is_none());
    kernel.hold_writes(false);
    let firsts: Vec<u8> = (0..11).map(|_| kernel.receive(SOON).unwrap()[10]).collect();
    assert_eq!(firsts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
}

#[test]
fn a_sparse_batch_that_the_kernel_has_no_room_for_goes_on_where_it_stopped() {
    let (mut writer, kernel) = start();
    kernel.fail_write(2, Fault::Errno(libc::EAGAIN));
    write(&mut writer, &[1, 2, 3, 4].map(|n| vec![n; 100]));
    let firsts = [0; 4].map(|_| kernel.receive(SOON).map(|raw| raw[10]));
    assert_eq!(firsts, [Some(1), Some(2), Some(3), Some(4)]);
    assert!(kernel.receive(Duration::from_millis(5)).is_none());
}

#[tokio::test]
async fn a_full_writer_has_no_batch_until_one_was_written() {
    let (mut writer, kernel) = start();
    kernel.hold_writes(true);
    for _ in 0..INBOUND_BATCHES {
        submit(&mut writer, &vec![vec![1; 100]; 5]);
    }
    assert!(writer.take(Duration::ZERO).is_none());
    assert!(
        tokio::time::timeout(Duration::from_millis(20), writer.room())
            .await
            .is_err()
    );
    kernel.hold_writes(false);
    tokio::time::timeout(SOON, writer.room()).await.unwrap();
    assert!(writer.take(Duration::ZERO).is_some());
    let written = (0..INBOUND_BATCHES * 5)
        .filter_map(|_| kernel.receive(SOON))
        .count();
    assert_eq!(written, INBOUND_BATCHES * 5);
}

#[test]
fn an_abandoned_batch_is_not_written_and_its_buffer_is_used_again() {
    let (mut writer, kernel) = start();
    for _ in 0..20 {
        let mut batch = take(&mut writer);
        push(&mut batch, &[1; 100]);
        drop(batch);
    }
    submit(&mut writer, &[vec![2; 100]]);
    assert_eq!(kernel.receive(SOON).unwrap()[10], 2);
    assert!(kernel.receive(Duration::from_millis(5)).is_none());
}

#[test]
fn a_refused_super_packet_turns_coalescing_off_and_loses_nothing() {
    let (mut writer, kernel) = start();
    let packets = Headers::new(true, true).segments(&payload(40_000, 1), 1000);
    kernel.fail_write(0, Fault::Errno(libc::EINVAL));
    assert_eq!(writer.coalescing(), TCP);
    for _ in 0..2 {
        submit(&mut writer, &packets);
        for packet in &packets {
            assert_eq!(&kernel.receive(SOON).unwrap()[10..], packet);
        }
    }
    until(|| writer.is_idle());
    assert_eq!(writer.coalescing(), Coalesce::default());
    let counters = writer.counters();
    assert_eq!((counters.refused_trains, counters.writes), (1, 81));
}

#[test]
fn coalescing_comes_back_ten_minutes_after_the_refusal_was_heard_of() {
    let (mut writer, kernel) = start();
    let packets = Headers::new(true, true).segments(&payload(40_000, 1), 1000);
    kernel.fail_write(0, Fault::Errno(libc::EINVAL));
    submit(&mut writer, &packets);
    until(|| writer.is_idle());
    let heard = Duration::from_secs(5000);
    let almost = heard + RETRY_AFTER_REFUSAL - Duration::from_secs(1);
    for (now, coalescing) in [
        (heard, Coalesce::default()),
        (almost, Coalesce::default()),
        (heard + RETRY_AFTER_REFUSAL, TCP),
    ] {
        drop(writer.take(now));
        assert_eq!(writer.coalescing(), coalescing, "{now:?}");
    }
    (0..packets.len()).for_each(|_| drop(kernel.receive(SOON).unwrap()));
    submit(&mut writer, &packets);
    until(|| writer.is_idle());
    assert_eq!(writer.counters().packets_per_write[40], 1);
    assert_eq!(writer.counters().failed, FailedPackets::default());

    // A kernel that still refuses is heard again.
    kernel.fail_write(0, Fault::Errno(libc::EINVAL));
    submit(&mut writer, &packets);
    until(|| writer.is_idle());
    assert_eq!(writer.coalescing(), Coalesce::default());
    assert_eq!(writer.counters().refused_trains, 2);
}

#[test]
fn the_thread_survives_a_link_that_is_down_and_an_interface_that_is_gone() {
    let (mut writer, kernel) = start();
    let packets = vec![vec![1; 100]; 10];
    (0..10).for_each(|nth| kernel.fail_write(nth, Fault::Errno(libc::EIO)));
    submit(&mut writer, &packets);
    until(|| writer.is_idle());
    kernel.delete();
    submit(&mut writer, &packets);
    until(|| writer.is_idle());
    let failed = writer.counters().failed;
    assert_eq!((failed.link_down, failed.deleted), (10, 10));
}

#[test]
fn only_what_the_device_has_offload_for_is_coalesced() {
    let none = Offload {
        vnet_hdr: true,
        tcp: false,
        udp: false,
    };
    let (device, _kernel) = memory::pair(none, 1420).unwrap();
    let writer = spawn_writer(
        &device,
        Coalesce {
            tcp: true,
            udp: true,
        },
    )
    .unwrap();
    assert_eq!(writer.coalescing(), Coalesce::default());
}

#[test]
fn dropping_the_writer_writes_what_was_submitted() {
    let (mut writer, kernel) = start();
    for _ in 0..INBOUND_BATCHES {
        submit(&mut writer, &vec![vec![1; 100]; 5]);
    }
    drop(writer);
    let written = std::iter::from_fn(|| kernel.receive(Duration::ZERO)).count();
    assert_eq!(written, INBOUND_BATCHES * 5);
}

#[test]
fn dropping_the_writer_ends_a_thread_that_waits_for_the_kernel() {
    let (mut writer, kernel) = start();
    kernel.hold_writes(true);
    submit(&mut writer, &vec![vec![1; 100]; 5]);
    drop(writer);
}

fn start() -> (Writer, Kernel) {
    let (device, kernel) = memory::pair(OFFLOAD, 1420).unwrap();
    (spawn_writer(&device, TCP).unwrap(), kernel)
}

fn take(writer: &mut Writer) -> InboundBatch {
    loop {
        if let Some(batch) = writer.take(Duration::ZERO) {
            return batch;
        }
        std::thread::yield_now();
    }
}

fn push(batch: &mut InboundBatch, packet: &[u8]) {
    batch.slot(packet.len() + 16).unwrap()[..packet.len()].copy_from_slice(packet);
    batch.commit(packet.len());
}

fn submit(writer: &mut Writer, packets: &[Vec<u8>]) {
    let batch = filled(writer, packets);
    writer.submit(batch);
}

fn write(writer: &mut Writer, packets: &[Vec<u8>]) {
    let batch = filled(writer, packets);
    writer.write(batch);
}

fn filled(writer: &mut Writer, packets: &[Vec<u8>]) -> InboundBatch {
    let mut batch = take(writer);
    packets.iter().for_each(|packet| push(&mut batch, packet));
    batch
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
