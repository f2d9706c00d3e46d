//! From a TUN read to packets: the reader thread's part and the event loop's.

use convoy_stages::packets::unsegmented;
use convoy_tun::{MAX_BATCH_PACKETS, OutboundBatch, stages::Intake};
use divan::{Bencher, black_box, counter::ItemsCount};

use crate::{FLOW, SEGMENT_PAYLOAD, SEGMENTS, each, each_of};

/// Contents of a batch.
const READS: [&str; 3] = ["TcpSuperPacket", "UdpSuperPacket", "SinglePackets"];

/// Includes a copy, which is the kernel's part; checking the virtio header and summing are ours.
#[divan::bench(args = READS)]
fn take_in(bencher: Bencher<'_, '_>, reads: &str) {
    let intake = Intake::default();
    let reads = raw(reads);
    let reads: Vec<&[u8]> = reads.iter().map(Vec::as_slice).collect();
    let packets = intake.batch(&reads).map_or(0, |batch| batch.packets());
    each(bencher, ItemsCount::new(packets), || intake.batch(&reads));
}

#[divan::bench(args = READS)]
fn cut(bencher: Bencher<'_, '_>, reads: &str) {
    let intake = Intake::default();
    let reads = raw(reads);
    let reads: Vec<&[u8]> = reads.iter().map(Vec::as_slice).collect();
    let packets = intake.batch(&reads).map_or(0, |batch| batch.packets());
    let input = || intake.batch(&reads);
    each_of(bencher, ItemsCount::new(packets), input, |batch| {
        while let Some(packet) = batch.as_mut().and_then(OutboundBatch::next) {
            black_box(packet.bytes());
        }
    });
}

fn raw(reads: &str) -> Vec<Vec<u8>> {
    match reads {
        "TcpSuperPacket" => vec![FLOW.tcp_super_packet(SEGMENTS, SEGMENT_PAYLOAD)],
        "UdpSuperPacket" => vec![FLOW.udp_super_packet(SEGMENTS, SEGMENT_PAYLOAD)],
        _ => vec![unsegmented(&FLOW.udp(1420)); MAX_BATCH_PACKETS],
    }
}
