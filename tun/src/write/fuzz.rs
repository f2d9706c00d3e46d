//! Fuzzes batches of any packets, against the packets that the kernel would cut from the writes.

use std::{collections::BTreeSet, time::Duration};

use convoy_fuzz::{Result, Unstructured};

use super::*;
use crate::{
    Coalesce, Offload,
    device::memory::{self, Fault, Kernel},
    inbound::InboundBatch,
    pool::Pool,
    testing::{Headers, payload, reference},
};

thread_local! {
    static POOL: Arc<Pool<InboundBuffer>> = Pool::new(1, InboundBuffer::new);
}

const ALL: Offload = Offload {
    vnet_hdr: true,
    tcp: true,
    udp: true,
};

#[test]
#[cfg_attr(miri, ignore = "too slow there")]
fn fuzz_batches() {
    convoy_fuzz::run("batches", 4000, 500, batches);
}

/// Checks that the writes, cut by the reference, give back the packets, in order within each flow.
fn batches(input: &mut Unstructured<'_>) -> Result<()> {
    let coalesce = Coalesce {
        tcp: input.ratio(7, 8)?,
        udp: input.ratio(7, 8)?,
    };
    let (device, kernel) = memory::pair(ALL, 1500).expect("a descriptor is left");
    let mut refused = false;
    for _ in 0..input.int_in_range(0..=3)? {
        let errno = if input.ratio(1, 4)? {
            refused = true;
            libc::EINVAL
        } else {
            libc::EAGAIN
        };
        kernel.fail_write(input.int_in_range(0..=12)?, Fault::Errno(errno));
    }
    let packets = packets(input)?;
    let mut writer = BatchWriter::new(device.io.clone(), true, Arc::default(), None);
    let counters = write_all(&mut writer, &packets, coalesce);
    let written = cut_all(&kernel, coalesce);

    assert_eq!(
        written.len() as u64 + counters.failed.refused,
        packets.len() as u64
    );
    let written: Vec<_> = written.iter().map(|p| reference::canonical(p)).collect();
    let packets: Vec<_> = packets.iter().map(|p| reference::canonical(p)).collect();
    let flows: BTreeSet<_> = packets.iter().map(|packet| Flow::of(packet)).collect();
    for flow in flows {
        let (written, packets) = (of_flow(&written, &flow), of_flow(&packets, &flow));
        if counters.failed.refused == 0 {
            assert_eq!(written, packets, "{flow:?}");
        } else {
            assert!(refused, "nobody refused anything");
            let mut left = packets.iter();
            assert!(written.iter().all(|w| left.any(|p| p == w)), "{flow:?}");
        }
    }
    Ok(())
}

fn write_all(writer: &mut BatchWriter, packets: &[Vec<u8>], coalesce: Coalesce) -> WriterCounters {
    let mut total = WriterCounters::default();
    let mut rest = packets;
    while !rest.is_empty() {
        let lease = POOL.with(Pool::take);
        let mut batch = InboundBatch(lease.expect("the batch of before was dropped"));
        batch.0.clear(coalesce);
        while let Some((packet, later)) = rest.split_first()
            && let Some(slot) = batch.slot(packet.len() + 16)
        {
            slot[..packet.len()].copy_from_slice(packet);
            slot[packet.len()..].fill(0xee);
            batch.commit(packet.len());
            rest = later;
        }
        // Retry while the kernel has no room, as the writer thread does.
        while writer.write(&mut batch.0).is_err() {}
        total.absorb(&mut batch.0.counters);
    }
    total
}

fn cut_all(kernel: &Kernel, coalesce: Coalesce) -> Vec<Vec<u8>> {
    let writes = std::iter::from_fn(|| kernel.receive(Duration::ZERO));
    writes
        .flat_map(|raw| {
            let packets = reference::packets_of(&raw).expect("the kernel would refuse it");
            assert!(packets.len() <= crate::MAX_BATCH_PACKETS);
            // As in `struct virtio_net_hdr`.
            match raw[1] {
                0 => return packets,
                5 => assert!(coalesce.udp),
                _ => assert!(coalesce.tcp),
            }
            assert!(packets.len() > 1, "a train of one");
            assert!(packets.iter().all(|p| reference::is_valid(p) == Some(true)));
            packets
        })
        .collect()
}

/// Addresses, protocol and ports of a packet, if known. Packets of a flow must not overtake each other.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flow(Option<Vec<u8>>);

impl Flow {
    fn of(packet: &[u8]) -> Self {
        let is_plain_v4 = packet.len() >= 24 && packet[0] == 0x45 && [6, 17].contains(&packet[9]);
        let is_plain_v6 = packet.len() >= 44 && packet[0] >> 4 == 6 && [6, 17].contains(&packet[6]);
        Self(if is_plain_v4 && reference::seed(packet).is_some() {
            Some([&[4, packet[9]], &packet[12..24]].concat())
        } else if is_plain_v6 && reference::seed(packet).is_some() {
            Some([&[6, packet[6]], &packet[8..44]].concat())
        } else {
            None
        })
    }
}

/// The packets of a flow and those of unknown flow, which may belong to any and so keep their place.
fn of_flow<'a>(packets: &'a [Vec<u8>], flow: &Flow) -> Vec<&'a [u8]> {
    let packets = packets.iter().map(Vec::as_slice);
    packets
        .filter(|packet| {
            [Flow(None)]
                .iter()
                .chain([flow])
                .any(|f| *f == Flow::of(packet))
        })
        .collect()
}

/// Packets of a few flows, most of which continue their flow; some have bytes changed.
fn packets(input: &mut Unstructured<'_>) -> Result<Vec<Vec<u8>>> {
    let mut flows: Vec<Headers> = (0..4u8)
        .map(|flow| Headers {
            source: flow + 1,
            fragment: if flow == 3 { 0 } else { 0x4000 },
            ..Headers::new(flow != 1, flow < 2)
        })
        .collect();
    let len: usize = input.int_in_range(1..=600)?;
    let mut packets = Vec::new();
    while !input.is_empty() && packets.len() < 120 {
        let [what, how]: [u8; 2] = input.arbitrary()?;
        let headers = &mut flows[usize::from(what & 3)];
        let len = match what >> 5 {
            0 => usize::from(how) * 3,
            1 => len.saturating_sub(usize::from(how)),
            _ => len,
        };
        let before = headers.clone();
        match what >> 2 & 7 {
            0 => headers.flags = how,
            1 => headers.flags |= how & 8,
            2 => headers.window = headers.window.wrapping_add(u16::from(how)),
            3 => headers.sequence = headers.sequence.wrapping_add(u32::from(how)),
            _ => {}
        }
        let mut packet = headers.packet(&payload(len, packets.len() as u8));
        *headers = before;
        headers.sequence = headers.sequence.wrapping_add(len as u32);
        headers.identification = headers.identification.wrapping_add(1);
        if what >> 5 == 7 && how & 1 == 1 {
            for _ in 0..=how >> 6 {
                let [at, bits]: [u8; 2] = input.arbitrary()?;
                let at = usize::from(at) % packet.len().min(80);
                packet[at] ^= if how & 4 == 4 { bits } else { 1 << (bits & 7) };
            }
            if how & 2 == 2 {
                packet = reference::with_checksums(&packet);
            }
        }
        if what >> 5 == 6 && how == 1 {
            packet.truncate(1 + usize::from(input.arbitrary::<u8>()?) % packet.len());
        }
        packets.push(packet);
    }
    Ok(packets)
}
