//! Coalesces packets into a batch for the TUN, and writes it to a device that accepts everything.

use convoy_stages::packets::Flow;
use convoy_tun::{InboundBatch, stages::Outlet};
use divan::{Bencher, counter::ItemsCount};

use crate::{COALESCE, FLOW, SEGMENT_PAYLOAD, each, each_of};

const PACKETS: usize = 40;

/// Contents of a batch.
const BATCHES: [&str; 3] = ["OneTcpFlow", "FourTcpFlows", "Udp"];

/// A copy stands in for decryption; the measured work is finding each packet's train.
#[divan::bench(args = BATCHES)]
fn fill(bencher: Bencher<'_, '_>, batch: &str) {
    let (outlet, packets) = (Outlet::new(COALESCE), build(batch));
    let fill = || filled(&outlet, &packets);
    each(bencher, ItemsCount::new(PACKETS), fill);
}

/// Verifies checksums and joins packets.
#[divan::bench(args = BATCHES)]
fn write(bencher: Bencher<'_, '_>, batch: &str) {
    let packets = build(batch);
    let (from, mut to) = (Outlet::new(COALESCE), Outlet::new(COALESCE));
    let input = || filled(&from, &packets);
    each_of(bencher, ItemsCount::new(PACKETS), input, |batch| {
        batch.take().map(|batch| to.write(batch))
    });
}

fn filled(outlet: &Outlet, packets: &[Vec<u8>]) -> Option<InboundBatch> {
    let mut batch = outlet.take()?;
    for packet in packets {
        let Some(slot) = batch.slot(packet.len()) else {
            break;
        };
        slot.copy_from_slice(packet);
        batch.commit(packet.len());
    }
    Some(batch)
}

fn build(batch: &str) -> Vec<Vec<u8>> {
    let flows = match batch {
        "OneTcpFlow" => 1,
        "FourTcpFlows" => 4,
        _ => return vec![FLOW.udp(1420); PACKETS],
    };
    let train = |n: u8| {
        let from = [10, 0, 1, n].into();
        Flow { from, ..FLOW }.tcp_train(PACKETS / flows, SEGMENT_PAYLOAD)
    };
    let trains: Vec<_> = (0..flows as u8).map(train).collect();
    let packets = (0..PACKETS).map(|n| trains[n % flows][n / flows].clone());
    packets.collect()
}
