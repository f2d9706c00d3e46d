use std::time::Duration;

use super::*;
use crate::{
    Offload, ReadCalls,
    device::memory::{self, Kernel},
    testing::{Headers, payload},
};

const VNET: Offload = Offload {
    vnet_hdr: true,
    tcp: true,
    udp: true,
};

#[tokio::test]
async fn packets_come_out_in_order_and_none_is_lost() {
    let (mut reader, kernel) = start(50);
    for nth in 0..1000 {
        kernel.send(&numbered(nth));
    }
    let mut received = 0;
    while received < 1000 {
        let mut batch = recv(&mut reader).await.unwrap();
        while let Some(packet) = batch.next() {
            assert_eq!(packet.bytes(), &numbered(received)[VNET_LEN..]);
            received += 1;
        }
    }
    assert!(matches!(reader.try_recv(), Err(TryRecv::Empty)));
}

#[tokio::test]
async fn no_batch_has_more_packets_than_it_may() {
    for limit in [1, 7, 50] {
        let (mut reader, kernel) = start(limit);
        (0..200).for_each(|nth| kernel.send(&numbered(nth)));
        let mut left = 200;
        while left > 0 {
            let batch = recv(&mut reader).await.unwrap();
            assert!(batch.packets() <= limit);
            left -= batch.packets();
        }
    }
}

#[tokio::test]
async fn a_super_packet_that_passes_the_limit_closes_its_batch() {
    let (vnet, packet) = Headers::new(true, true).super_packet(&payload(60_000, 1), 1000);
    let raw = [&vnet.to_bytes()[..], &packet].concat();
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    kernel.send(&numbered(0));
    (0..3).for_each(|_| kernel.send(&raw));
    let mut reader = spawn_reader(&device, 50).unwrap();
    for expected in [vec![1, 60], vec![60], vec![60]] {
        let batch = recv(&mut reader).await.unwrap();
        assert_eq!(batch.packets_per_read().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_batch_ends_where_another_super_packet_would_pass_its_limit() {
    let (vnet, packet) = Headers::new(true, true).super_packet(&payload(20_000, 1), 1000);
    let raw = [&vnet.to_bytes()[..], &packet].concat();
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    (0..5).for_each(|_| kernel.send(&raw));
    let mut reader = spawn_reader(&device, 50).unwrap();
    for expected in [vec![20, 20], vec![20, 20], vec![20]] {
        let batch = recv(&mut reader).await.unwrap();
        assert_eq!(batch.packets_per_read().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn what_waits_is_read_into_one_batch_with_no_wait_between() {
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    (0..30).for_each(|nth| kernel.send(&numbered(nth)));
    let mut reader = spawn_reader(&device, 50).unwrap();
    let batch = recv(&mut reader).await.unwrap();
    assert_eq!(batch.packets(), 30);
    assert_eq!(
        batch.calls(),
        ReadCalls {
            reads: 31,
            waits: 0
        }
    );
    kernel.send(&numbered(30));
    let batch = recv(&mut reader).await.unwrap();
    assert_eq!(
        (batch.packets(), batch.calls()),
        (1, ReadCalls { reads: 2, waits: 1 })
    );
}

#[tokio::test]
async fn a_full_channel_stops_the_reader_and_loses_nothing() {
    let (mut reader, kernel) = start(1);
    (0..100).for_each(|nth| kernel.send(&numbered(nth)));
    let taken = OUTBOUND_BATCHES;
    until(|| kernel.unread() == 100 - taken);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(kernel.unread(), 100 - taken);
    for nth in 0..100 {
        let mut batch = recv(&mut reader).await.unwrap();
        assert_eq!(batch.next().unwrap().bytes(), &numbered(nth)[VNET_LEN..]);
    }
}

#[tokio::test]
async fn whoever_keeps_all_batches_stops_the_reader_until_half_are_dropped() {
    let (mut reader, kernel) = start(1);
    (0..20).for_each(|nth| kernel.send(&numbered(nth)));
    let mut held = Vec::new();
    for _ in 0..OUTBOUND_BATCHES {
        held.push(recv(&mut reader).await.unwrap());
    }
    assert!(
        tokio::time::timeout(Duration::from_millis(20), recv(&mut reader))
            .await
            .is_err()
    );
    held.truncate(OUTBOUND_BATCHES / 2);
    assert_eq!(recv(&mut reader).await.unwrap().packets(), 1);
}

#[tokio::test]
async fn malformed_reads_are_reported_even_when_nothing_else_was_read() {
    let (mut reader, kernel) = start(50);
    kernel.send(&[0xff; 40]);
    let batch = recv(&mut reader).await.unwrap();
    assert_eq!((batch.malformed(), batch.packets()), (1, 0));
}

#[tokio::test]
async fn a_deleted_interface_ends_the_thread_after_what_was_read() {
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    kernel.send(&numbered(0));
    kernel.send(&numbered(1));
    kernel.fail_read(1, libc::EBADFD);
    let mut reader = spawn_reader(&device, 50).unwrap();
    assert_eq!(recv(&mut reader).await.unwrap().packets(), 1);
    assert!(matches!(
        recv(&mut reader).await,
        Err(ReaderExit::InterfaceDeleted)
    ));
    assert!(matches!(
        reader.try_recv(),
        Err(TryRecv::Closed(ReaderExit::Stopped))
    ));
}

#[tokio::test]
async fn an_interface_deleted_while_the_reader_waits_ends_it() {
    let (mut reader, kernel) = start(50);
    kernel.delete();
    assert!(matches!(
        recv(&mut reader).await,
        Err(ReaderExit::InterfaceDeleted)
    ));
}

#[tokio::test]
async fn an_unknown_error_ends_the_thread_and_an_interrupted_read_does_not() {
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    (0..3).for_each(|nth| kernel.send(&numbered(nth)));
    kernel.fail_read(0, libc::EINTR);
    kernel.fail_read(2, libc::ENOTCONN);
    let mut reader = spawn_reader(&device, 50).unwrap();
    assert_eq!(recv(&mut reader).await.unwrap().packets(), 1);
    let Err(ReaderExit::Failed(error)) = recv(&mut reader).await else {
        panic!("the thread should have failed");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

#[tokio::test]
async fn packets_that_the_driver_refuses_are_malformed_and_the_next_is_read() {
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    (0..4).for_each(|nth| kernel.send(&numbered(nth)));
    (0..3).for_each(|nth| kernel.fail_read(nth, libc::EINVAL));
    let mut reader = spawn_reader(&device, 2).unwrap();
    let batch = recv(&mut reader).await.unwrap();
    assert_eq!((batch.malformed(), batch.packets()), (2, 0));
    let mut batch = recv(&mut reader).await.unwrap();
    assert_eq!((batch.malformed(), batch.packets()), (1, 1));
    assert_eq!(batch.next().unwrap().bytes(), &numbered(3)[VNET_LEN..]);
}

#[test]
fn a_device_that_refuses_every_read_has_failed() {
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    let mut source = Source {
        io: Arc::clone(&device.io),
        framing: VNET_LEN,
        refused: 0,
    };
    let mut batch = OutboundBuffer::new();
    let mut refuse = |source: &mut Source| {
        kernel.send(&numbered(0));
        kernel.fail_read(0, libc::EINVAL);
        source.fill(&mut batch, 1)
    };
    for _ in 0..MOST_REFUSED {
        assert_eq!(refuse(&mut source).unwrap(), Filled::Full);
    }
    assert!(matches!(refuse(&mut source), Err(ReaderExit::Failed(_))));
    assert!(matches!(
        source.fill(&mut OutboundBuffer::new(), 1),
        Ok(Filled::Drained)
    ));
    assert!(refuse(&mut source).is_ok(), "an empty device ends the row");
}

#[tokio::test]
async fn a_stopped_reader_says_so() {
    let (mut reader, _kernel) = start(50);
    reader.stop();
    assert!(matches!(recv(&mut reader).await, Err(ReaderExit::Stopped)));
}

#[tokio::test]
async fn lone_packets_are_read_without_the_thread() {
    let (mut reader, kernel) = start(50);
    become_sparse(&mut reader, &kernel).await;
    for nth in 1..20 {
        kernel.send(&numbered(nth));
        let mut batch = recv(&mut reader).await.unwrap();
        assert_eq!(batch.next().unwrap().bytes(), &numbered(nth)[VNET_LEN..]);
        assert_eq!((batch.packets(), batch.calls().waits), (1, 0));
    }
    assert!(matches!(reader.try_recv(), Err(TryRecv::Empty)));
}

#[tokio::test]
async fn a_burst_ends_sparse_traffic_and_nothing_is_reordered() {
    let (mut reader, kernel) = start(50);
    for _ in 0..3 {
        become_sparse(&mut reader, &kernel).await;
        (0..200).for_each(|nth| kernel.send(&numbered(nth)));
        let mut received = 0;
        while received < 200 {
            let mut batch = recv(&mut reader).await.unwrap();
            while let Some(packet) = batch.next() {
                assert_eq!(packet.bytes(), &numbered(received)[VNET_LEN..]);
                received += 1;
            }
        }
        assert!(!reader.is_sparse(FEW));
    }
}

#[tokio::test]
async fn a_super_packet_ends_sparse_traffic() {
    let (vnet, packet) = Headers::new(true, true).super_packet(&payload(20_000, 1), 1000);
    let (mut reader, kernel) = start(50);
    become_sparse(&mut reader, &kernel).await;
    kernel.send(&[&vnet.to_bytes()[..], &packet].concat());
    assert_eq!(recv(&mut reader).await.unwrap().packets(), 20);
    assert!(!reader.is_sparse(FEW));
}

#[tokio::test]
async fn an_inbound_burst_or_a_loop_that_never_waits_ends_sparse_traffic() {
    let (mut reader, kernel) = start(50);
    for (inbound, busy_ticks) in [(FEW + 1, 0), (0, FEW as u32 + 1)] {
        become_sparse(&mut reader, &kernel).await;
        reader.observe(FEW, FEW as u32);
        assert!(reader.is_sparse(FEW) && !reader.is_sparse(FEW + 1));
        reader.observe(inbound, busy_ticks);
        assert!(!reader.is_sparse(FEW));
        kernel.send(&numbered(0));
        let batch = recv(&mut reader).await.unwrap();
        assert!(!batch.is_sparse());
    }
}

#[tokio::test]
async fn a_deleted_interface_is_reported_while_traffic_is_sparse() {
    let (mut reader, kernel) = start(50);
    become_sparse(&mut reader, &kernel).await;
    kernel.delete();
    assert!(matches!(
        recv(&mut reader).await,
        Err(ReaderExit::InterfaceDeleted)
    ));
}

#[tokio::test]
async fn dropping_the_reader_ends_a_thread_that_has_lent_the_device() {
    let (mut reader, kernel) = start(50);
    become_sparse(&mut reader, &kernel).await;
    drop(reader);
}

#[test]
fn dropping_the_reader_ends_a_thread_that_waits_for_anything() {
    let (waits_for_packets, _kernel) = start(50);
    drop(waits_for_packets);

    let (waits_for_the_channel, kernel) = start(1);
    (0..100).for_each(|nth| kernel.send(&numbered(nth)));
    until(|| kernel.unread() < 96);
    drop(waits_for_the_channel);
}

/// Sends lone packets until the thread lends the device.
async fn become_sparse(reader: &mut Reader, kernel: &Kernel) {
    while !reader.is_sparse(FEW) {
        std::thread::sleep(PAUSE);
        kernel.send(&numbered(0));
        assert_eq!(recv(reader).await.unwrap().packets(), 1);
    }
}

/// The next batch, or the reason why there is none.
async fn recv(reader: &mut Reader) -> Result<OutboundBatch, ReaderExit> {
    loop {
        match reader.try_recv() {
            Ok(batch) => return Ok(batch),
            Err(TryRecv::Closed(exit)) => return Err(exit),
            Err(TryRecv::Empty) => reader.ready().await,
        }
    }
}

fn start(batch: usize) -> (Reader, Kernel) {
    let (device, kernel) = memory::pair(VNET, 1420).unwrap();
    (spawn_reader(&device, batch).unwrap(), kernel)
}

/// A raw read that carries a number.
fn numbered(nth: usize) -> Vec<u8> {
    let packet = Headers::new(true, false).packet(&nth.to_be_bytes());
    [&[0; VNET_LEN], &packet[..]].concat()
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
