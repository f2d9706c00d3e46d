//! Coalesces packets into a batch for the TUN, and writes it to a device that accepts everything.

use convoy_stages::packets::Flow;
use convoy_tun::{InboundBatch, stages::Outlet};
use divan::{Bencher, counter::ItemsCount};

use crate::{COALESCE, FLOW, SEGMENT_PAYLOAD, each, each_of};

const PACKETS: usize = 40;

/// The contents of a batch.
#[derive(Clone, Copy, Debug)]
enum Packets {
    OneTcpFlow,
    FourTcpFlows,
    Udp,
}

const ALL: [Packets; 3] = [Packets::OneTcpFlow, Packets::FourTcpFlows, Packets::Udp];

/// A copy stands in for decryption; the measured work is finding each packet's train.
#[divan::bench(args = ALL)]
fn fill(bencher: Bencher<'_, '_>, packets: Packets) {
    let (outlet, packets) = (Outlet::new(COALESCE), packets.build());
    each(bencher, ItemsCount::new(PACKETS), || {
        filled(&outlet, &packets)
    });
}

/// Verifies checksums and joins packets.
#[divan::bench(args = ALL)]
fn write(bencher: Bencher<'_, '_>, packets: Packets) {
    let packets = packets.build();
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

impl Packets {
    fn build(self) -> Vec<Vec<u8>> {
        match self {
            Self::OneTcpFlow => FLOW.tcp_train(PACKETS, SEGMENT_PAYLOAD),
            Self::FourTcpFlows => {
                let from = |n| Flow {
                    from: [10, 0, 1, n].into(),
                    ..FLOW
                };
                let trains = [0, 1, 2, 3].map(|n| from(n).tcp_train(PACKETS / 4, SEGMENT_PAYLOAD));
                let nth = |n: usize| trains.each_ref().map(|train| train[n].clone());
                (0..PACKETS / 4).flat_map(nth).collect()
            }
            Self::Udp => vec![FLOW.udp(1420); PACKETS],
        }
    }
}
