use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    BATCH_BYTES, Coalesce, Device, FailedPackets, Offload,
    cut::{Cutter, Framing, unframe},
    device::memory::{self, Fault, Kernel},
    inbound::InboundBatch,
    pool::Pool,
    testing::{Headers, payload},
};

const ALL: Offload = Offload {
    vnet_hdr: true,
    tcp: true,
    udp: true,
};
const BOTH: Coalesce = Coalesce {
    tcp: true,
    udp: true,
};

/// The next event in one of several flows.
#[derive(Clone, Debug)]
enum Step {
    Next { len: usize },
    Push { len: usize },
    Flags(u8),
    Gap(u32),
    Acknowledge,
    Window,
    Option,
    Ttl,
    TrafficClass,
    Identification,
    Fragment,
    NetworkOptions,
    BadTransportChecksum,
    BadNetworkChecksum,
    NoChecksum,
    Nonsense,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => Just(Step::Next { len: 1000 }),
        3 => (0..1100usize).prop_map(|len| Step::Next { len }),
        2 => Just(Step::Push { len: 1000 }),
        1 => any::<u8>().prop_map(Step::Flags),
        1 => (1..5000u32).prop_map(Step::Gap),
        1 => Just(Step::Acknowledge),
        1 => Just(Step::Window),
        1 => Just(Step::Option),
        1 => Just(Step::Ttl),
        1 => Just(Step::TrafficClass),
        1 => Just(Step::Identification),
        1 => Just(Step::Fragment),
        1 => Just(Step::NetworkOptions),
        1 => Just(Step::BadTransportChecksum),
        1 => Just(Step::BadNetworkChecksum),
        1 => Just(Step::NoChecksum),
        1 => Just(Step::Nonsense),
    ]
}

proptest! {
    #[test]
    fn cutting_what_was_written_gives_the_packets_back_in_the_order_of_their_flows(
        steps in proptest::collection::vec((0..4usize, any_step()), 1..50),
        runs in 1..12usize,
    ) {
        let packets = play(&steps, runs);
        let (device, kernel) = memory::pair(ALL, 1500).unwrap();
        let (written, counters) = write_all(&device, &kernel, BOTH, &packets);
        let cut: Vec<Vec<u8>> = written.iter().flat_map(|raw| cut(raw)).collect();
        prop_assert_eq!(cut.len(), packets.len());
        for source in 0..=4 {
            prop_assert_eq!(of_flow(&cut, source), of_flow(&packets, source));
        }
        prop_assert_eq!(counters.failed, FailedPackets::default());
        prop_assert_eq!(counters.writes, written.len() as u64);
    }

    #[test]
    fn a_refused_super_packet_loses_nothing(
        steps in proptest::collection::vec((0..4usize, any_step()), 1..50),
        nth in 0..10usize,
    ) {
        let packets = play(&steps, 8);
        let (device, kernel) = memory::pair(ALL, 1500).unwrap();
        kernel.fail_write(nth, Fault::Errno(libc::EINVAL));
        let (written, counters) = write_all(&device, &kernel, BOTH, &packets);
        let cut: Vec<Vec<u8>> = written.iter().flat_map(|raw| cut(raw)).collect();
        let lost = counters.failed.refused as usize;
        prop_assert!(lost <= 1 && lost as u64 + counters.refused_trains <= 1);
        prop_assert_eq!(cut.len() + lost, packets.len());
        if lost == 0 {
            for source in 0..=4 {
                prop_assert_eq!(of_flow(&cut, source), of_flow(&packets, source));
            }
        }
    }
}

#[test]
fn a_run_of_one_flow_is_one_write() {
    for (is_v4, is_tcp) in [(true, true), (true, false), (false, true), (false, false)] {
        let headers = Headers::new(is_v4, is_tcp);
        let packets = headers.segments(&payload(47 * 1300 + 5, 1), 1300);
        let (device, kernel) = memory::pair(ALL, 1500).unwrap();
        let (written, counters) = write_all(&device, &kernel, BOTH, &packets);
        assert_eq!(written.len(), 1, "v4 {is_v4} tcp {is_tcp}");
        assert_eq!(counters.packets_per_write[48], 1);
        assert_eq!(cut(&written[0]), packets);
    }
}

#[test]
fn interleaved_flows_are_one_write_each() {
    let flows: Vec<Vec<Vec<u8>>> = (1..=4)
        .map(|source| Headers {
            source,
            ..Headers::new(source % 2 == 0, true)
        })
        .map(|headers| headers.segments(&payload(12_000, 1), 1000))
        .collect();
    let packets: Vec<Vec<u8>> = (0..12)
        .flat_map(|nth| flows.iter().map(move |flow| flow[nth].clone()))
        .collect();
    let (device, kernel) = memory::pair(ALL, 1500).unwrap();
    let (written, _) = write_all(&device, &kernel, BOTH, &packets);
    assert_eq!(written.len(), 4);
    for (raw, flow) in written.iter().zip(&flows) {
        assert_eq!(&cut(raw), flow);
    }
}

#[test]
fn a_packet_with_a_bad_checksum_is_never_joined() {
    for (at, is_v4) in [
        (10, true),
        (36, true),
        (56, false),
        (300, true),
        (300, false),
    ] {
        for bad in 0..4 {
            let mut packets = Headers::new(is_v4, true).segments(&payload(4000, 1), 1000);
            packets[bad][at] ^= 1;
            let (device, kernel) = memory::pair(ALL, 1500).unwrap();
            let (written, counters) = write_all(&device, &kernel, BOTH, &packets);
            assert_eq!(counters.bad_checksums, 1);
            assert!(written.iter().any(|raw| raw[VNET_LEN..] == packets[bad]));
            assert_eq!(
                written.iter().flat_map(|raw| cut(raw)).collect::<Vec<_>>(),
                packets
            );
        }
    }
}

#[test]
fn a_coalesced_write_says_to_the_kernel_what_it_is() {
    let headers = Headers {
        flags: ip::tcp::ACK | ip::tcp::PSH,
        ..Headers::new(true, true)
    };
    let packets = headers.segments(&payload(2500, 1), 1000);
    let (device, kernel) = memory::pair(ALL, 1500).unwrap();
    let (written, _) = write_all(&device, &kernel, BOTH, &packets);
    let (vnet, packet) = headers.super_packet(&payload(2500, 1), 1000);
    assert_eq!(
        written,
        [[
            &VnetHeader {
                hdr_len: 52,
                ..vnet
            }
            .to_bytes()[..],
            &packet
        ]
        .concat()]
    );
}

#[test]
fn without_a_virtio_header_packets_are_written_as_they_are() {
    let packets = Headers::new(true, true).segments(&payload(3000, 1), 1000);
    let (device, kernel) = memory::pair(Offload::default(), 1500).unwrap();
    let (written, _) = write_all(&device, &kernel, Coalesce::default(), &packets);
    assert_eq!(written, packets);
}

#[test]
fn only_the_protocols_asked_for_are_coalesced() {
    let tcp = Headers::new(true, true).segments(&payload(3000, 1), 1000);
    let udp = Headers::new(true, false).segments(&payload(3000, 1), 1000);
    for (coalesce, tcp_writes, udp_writes) in [
        (
            Coalesce {
                tcp: true,
                udp: false,
            },
            1,
            3,
        ),
        (
            Coalesce {
                tcp: false,
                udp: true,
            },
            3,
            1,
        ),
        (Coalesce::default(), 3, 3),
    ] {
        let (device, kernel) = memory::pair(ALL, 1500).unwrap();
        assert_eq!(
            write_all(&device, &kernel, coalesce, &tcp).0.len(),
            tcp_writes
        );
        assert_eq!(
            write_all(&device, &kernel, coalesce, &udp).0.len(),
            udp_writes
        );
    }
}

#[test]
fn each_failure_is_counted_by_its_cause_and_the_rest_is_written() {
    let counted = |fault| {
        let packets = Headers::new(true, true).segments(&payload(3000, 1), 1000);
        let (device, kernel) = memory::pair(ALL, 1500).unwrap();
        kernel.fail_write(1, fault);
        let (written, counters) = write_all(&device, &kernel, Coalesce::default(), &packets);
        assert_eq!(written.len(), 2);
        counters.failed
    };
    let none = FailedPackets::default();
    assert_eq!(
        counted(Fault::Errno(libc::EIO)),
        FailedPackets {
            link_down: 1,
            ..none
        }
    );
    assert_eq!(
        counted(Fault::Errno(libc::ENOBUFS)),
        FailedPackets {
            no_memory: 1,
            ..none
        }
    );
    assert_eq!(
        counted(Fault::Errno(libc::ENOMEM)),
        FailedPackets {
            no_memory: 1,
            ..none
        }
    );
    assert_eq!(
        counted(Fault::Errno(libc::EINVAL)),
        FailedPackets { refused: 1, ..none }
    );
    assert_eq!(
        counted(Fault::Errno(libc::EBADFD)),
        FailedPackets { deleted: 1, ..none }
    );
    assert_eq!(
        counted(Fault::Short(30)),
        FailedPackets { other: 1, ..none }
    );
}

#[test]
fn a_lost_super_packet_counts_as_its_packets() {
    let packets = Headers::new(true, true).segments(&payload(3000, 1), 1000);
    let (device, kernel) = memory::pair(ALL, 1500).unwrap();
    kernel.fail_write(0, Fault::Errno(libc::EIO));
    let (written, counters) = write_all(&device, &kernel, BOTH, &packets);
    assert_eq!((written.len(), counters.failed.link_down), (0, 3));
}

/// Builds the packets of these steps; each flow sends `runs` packets in a row.
fn play(steps: &[(usize, Step)], runs: usize) -> Vec<Vec<u8>> {
    let mut flows: Vec<Headers> = (0..4u8)
        .map(|flow| Headers {
            source: flow + 1,
            ..Headers::new(flow % 2 == 0, flow < 2)
        })
        .collect();
    let mut packets = Vec::new();
    for (index, (flow, step)) in steps.iter().enumerate() {
        let flow = if index % runs == 0 {
            *flow
        } else {
            index / runs % 4
        };
        let before = flows[flow].clone();
        let headers = &mut flows[flow];
        let mut len = 1000;
        match step {
            Step::Next { len: other } => len = *other,
            Step::Push { len: other } => {
                (len, headers.flags) = (*other, headers.flags | ip::tcp::PSH)
            }
            Step::Flags(flags) => headers.flags = *flags,
            Step::Gap(gap) => headers.sequence = headers.sequence.wrapping_add(*gap),
            Step::Acknowledge => headers.acknowledgement += 1,
            Step::Window => headers.window += 1,
            Step::Option => headers.option_byte += 1,
            Step::Ttl => headers.ttl -= 1,
            Step::TrafficClass => headers.traffic_class += 1,
            Step::Identification => (headers.identification, headers.fragment) = (0, 0),
            Step::Fragment => headers.fragment = 0x2000,
            Step::NetworkOptions => headers.network_options = 1,
            _ => {}
        }
        let mut packet = headers.packet(&payload(len, index as u8));
        match step {
            Step::BadTransportChecksum => *packet.last_mut().unwrap() ^= 0x10,
            Step::BadNetworkChecksum if headers.is_v4 => packet[10] ^= 1,
            Step::NoChecksum if !headers.is_tcp => {
                let at = headers.transport() + 6;
                packet[at..at + 2].fill(0);
            }
            Step::Nonsense => packet = vec![index as u8; 1 + index * 3],
            _ => {}
        }
        headers.sequence = headers.sequence.wrapping_add(len as u32);
        headers.identification = headers.identification.wrapping_add(1);
        // Undo the changes that would keep every later packet out of a train; keep the others.
        headers.flags = before.flags;
        headers.network_options = 0;
        headers.fragment = if matches!(step, Step::Fragment) {
            before.fragment
        } else {
            headers.fragment
        };
        packets.push(packet);
    }
    packets
}

fn write_all(
    device: &Device,
    kernel: &Kernel,
    coalesce: Coalesce,
    packets: &[Vec<u8>],
) -> (Vec<Vec<u8>>, WriterCounters) {
    assert!(
        packets
            .iter()
            .map(|packet| packet.len() + 128)
            .sum::<usize>()
            < BATCH_BYTES
    );
    let pool = Pool::new(1, InboundBuffer::new);
    let vnet_hdr = device.offload().vnet_hdr;
    let mut writer = BatchWriter::new(device.io.clone(), vnet_hdr, Arc::default(), None);
    let mut total = WriterCounters::default();
    let mut rest = packets;
    while !rest.is_empty() {
        let mut batch = InboundBatch(pool.take().unwrap());
        batch.0.clear(coalesce);
        while let Some((packet, later)) = rest.split_first()
            && let Some(slot) = batch.slot(packet.len() + 16)
        {
            slot[..packet.len()].copy_from_slice(packet);
            batch.commit(packet.len());
            rest = later;
        }
        writer.write(&mut batch.0).expect("the twin has room");
        total.absorb(&mut batch.0.counters);
    }
    (
        std::iter::from_fn(|| kernel.receive(Duration::ZERO)).collect(),
        total,
    )
}

fn cut(raw: &[u8]) -> Vec<Vec<u8>> {
    let vnet = VnetHeader::parse(*raw.first_chunk().unwrap());
    let mut packet = raw[VNET_LEN..].to_vec();
    let Framing::Super(shape) = unframe(vnet, &mut packet).unwrap() else {
        return vec![packet];
    };
    let cutter = Cutter::new(shape, &packet);
    (0..shape.segments())
        .map(|index| {
            let sum = sum(&packet[cutter.payload(index)]);
            let segment = cutter.cut(&mut packet, index, sum);
            packet[segment].to_vec()
        })
        .collect()
}

/// The packets from one source (0: those that are no packets), without the fields that RFC 6864 leaves
/// undefined.
fn of_flow(packets: &[Vec<u8>], source: u8) -> Vec<Vec<u8>> {
    let source_of = |packet: &[u8]| match packet.first() {
        Some(0x45 | 0x46) if packet.len() >= 20 && packet[12] == 10 => packet[15],
        Some(0x60) if packet.len() >= 40 && packet[8] == 0xfd => packet[23],
        _ => 0,
    };
    let mut packets: Vec<Vec<u8>> = packets
        .iter()
        .filter(|packet| source_of(packet) == source)
        .cloned()
        .collect();
    for packet in packets
        .iter_mut()
        .filter(|packet| source > 0 && packet[0] == 0x45 && packet[6] & 0x40 != 0)
    {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packets
}
