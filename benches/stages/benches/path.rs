//! All stages of one direction in sequence, as a tick calls them: without threads, sockets or devices.

use std::io;

use convoy_gso::{Destination, Flusher, GsoQueue, SendDatagrams};
use convoy_proto::Staging;
use convoy_stages::{HERE, Kept, NOW, connected, datagrams_from};
use convoy_tun::stages::{Intake, Outlet};
use convoy_tunnel::adapters::{BatchFromTun, ToTun, ToUdp};
use divan::{Bencher, black_box, counter::ItemsCount};

use crate::{COALESCE, FLOW, SEGMENT_PAYLOAD, SEGMENTS, each_of};

/// A super-packet: cut, routed, encrypted, queued and flushed.
#[divan::bench]
fn outbound(bencher: Bencher<'_, '_>) {
    let (mut here, _) = connected();
    let intake = Intake::default();
    let read = FLOW.tcp_super_packet(SEGMENTS, SEGMENT_PAYLOAD);
    let mut queues = [GsoQueue::default(), GsoQueue::default()];
    let mut flusher = Flusher::new(true);
    let mut staging = Staging::default();
    let input = || intake.batch(&[&read]);
    each_of(bencher, ItemsCount::new(SEGMENTS), input, |batch| {
        let mut sink = ToUdp::new(queues.each_mut(), [true; 2]);
        if let Some(batch) = batch {
            let mut packets = BatchFromTun(batch, SEGMENTS);
            here.handle_outbound(&mut packets, NOW, &mut staging, &mut sink);
        }
        flusher.flush(&mut queues[0], &mut NoSocket, NOW)
    });
}

/// The datagrams of that super-packet: session lookup, decryption, replay window, coalescing, write.
#[divan::bench]
fn inbound(bencher: Bencher<'_, '_>) {
    let (mut here, mut there) = connected();
    let intake = Intake::default();
    let read = FLOW.tcp_super_packet(SEGMENTS, SEGMENT_PAYLOAD);
    let mut outlet = Outlet::new(COALESCE);
    let mut staging = Staging::default();
    let input = || {
        let mut batch = intake.batch(&[&read]);
        let mut datagrams = Kept::default();
        if let Some(batch) = &mut batch {
            let mut packets = BatchFromTun(batch, SEGMENTS);
            here.handle_outbound(&mut packets, NOW, &mut staging, &mut datagrams);
        }
        datagrams.0
    };
    each_of(bencher, ItemsCount::new(SEGMENTS), input, |datagrams| {
        let mut batch = outlet.take();
        let mut sink = ToTun(batch.as_mut());
        let _ = there.handle_inbound(datagrams_from(HERE, &*datagrams), NOW, &mut sink);
        batch.map(|batch| outlet.write(batch))
    });
}

/// Accepts every batch.
struct NoSocket;

impl SendDatagrams for NoSocket {
    fn send(&mut self, _: &Destination, contents: &[u8], _: Option<usize>) -> io::Result<()> {
        black_box(contents);
        Ok(())
    }

    fn forget_learnt_mtu(&mut self, _: std::net::SocketAddr) {}

    fn recover(&mut self) {}
}
