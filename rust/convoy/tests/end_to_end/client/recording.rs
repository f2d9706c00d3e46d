//! `convoy capture`: the packets inside a tunnel, as a file.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use convoy_lab::eventually;
use etherparse::SlicedPacket;
use nix::sys::signal::Signal;
use pcap_file::pcapng::{
    Block, PcapNgReader,
    blocks::{
        enhanced_packet::EnhancedPacketOption, interface_statistics::InterfaceStatisticsOption,
    },
};

use super::{
    capture::addresses,
    outcome::Running,
    world::{BEHIND, EVERYTHING, World},
};
use crate::scene::DEADLINE;

const CLIENT: &str = "10.8.0.2";
/// The direction in `epb_flags`.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

#[test]
fn a_capture_has_the_packets_of_both_directions_in_the_clear() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wg0.pcapng");
    world.configure("", EVERYTHING);
    world.up();
    let capture = begin(&world, &file);
    world.reaches(BEHIND[0]);
    capture.signal(Signal::SIGINT);
    let outcome = capture.wait().succeeds();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let recorded = Recorded::read(&file);
    let is = |it: &Packet, from, to, direction| {
        it.from == from && it.to == to && it.direction == direction
    };
    let (there, back) = (CLIENT, BEHIND[0]);
    let packets = &recorded.packets;
    assert!(
        packets.iter().any(|it| is(it, there, back, OUTBOUND)),
        "{packets:?}"
    );
    assert!(
        packets.iter().any(|it| is(it, back, there, INBOUND)),
        "{packets:?}"
    );
    let said = format!("convoy: {} packets captured, 0 lost", packets.len());
    assert!(outcome.stderr.contains(&said), "{outcome:?}");
    assert_eq!(recorded.dropped, Some(0));
}

#[test]
fn a_capture_ends_with_its_count_its_reader_or_its_interface() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wg0.pcapng");
    let path = file.to_str().unwrap();
    world.configure("", EVERYTHING);
    world.up();
    let capture = world.start(&["capture", "wg0", "-w", path, "--count", "2"]);
    is_capturing(&capture);
    world.reaches(BEHIND[0]);
    capture.wait().succeeds();
    assert_eq!(Recorded::read(&file).packets.len(), 2);

    world.shell("ping -c 1 -i 0.1 198.51.100.1; mkfifo /run/pipe");
    let capture = world.start(&["capture", "wg0", "-w", "/run/pipe"]);
    world.shell("head -c 1 /run/pipe");
    world.reaches(BEHIND[0]);
    capture.wait().succeeds();

    let capture = begin(&world, &file);
    world.down();
    let failed = capture.wait().fails_with("wg0 is gone");
    assert!(failed.stderr.contains("packets captured"), "{failed:?}");
    assert_eq!(Recorded::read(&file).dropped, Some(0));
}

#[test]
fn a_capture_that_cannot_begin_says_why() {
    let Some(world) = World::new() else { return };
    let capture = |name, file| world.convoy(&["capture", name, "-w", file]);
    capture("wg7", "/run/file").fails_with("wg7 is not up");
    capture("eth0", "/run/file").fails_with("eth0 is not the interface of a tunnel");
    world.configure("", EVERYTHING);
    world.up();
    capture("wg0", "/nowhere/file").fails_with("cannot write /nowhere/file: No such file");
    capture("wg0", "/dev/full").fails_with("cannot write /dev/full: No space left");
}

fn begin(world: &World, file: &Path) -> Running {
    let capture = world.start(&["capture", "wg0", "-w", file.to_str().unwrap()]);
    is_capturing(&capture);
    capture
}

fn is_capturing(capture: &Running) {
    let said = || capture.said().contains("capturing on wg0").then_some(());
    assert!(eventually(DEADLINE, said).is_some(), "{}", capture.said());
}

/// Contents of a file.
struct Recorded {
    packets: Vec<Packet>,
    /// Count of lost packets, if the file has an end.
    dropped: Option<u64>,
}

#[derive(Debug)]
struct Packet {
    from: String,
    to: String,
    direction: u32,
}

impl Recorded {
    fn read(path: &Path) -> Self {
        let mut reader = PcapNgReader::new(fs::File::open(path).unwrap()).unwrap();
        let mut recorded = Self {
            packets: Vec::new(),
            dropped: None,
        };
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::EnhancedPacket(packet) => {
                    let direction = packet.options.iter().find_map(|option| match option {
                        EnhancedPacketOption::Flags(flags) => Some(*flags),
                        _ => None,
                    });
                    let packet = Packet::parse(&packet.data, direction.unwrap());
                    recorded.packets.extend(packet);
                }
                Block::InterfaceStatistics(end) => {
                    recorded.dropped = end.options.iter().find_map(|option| match option {
                        InterfaceStatisticsOption::IsbOsDrop(count) => Some(*count),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        recorded
    }
}

impl Packet {
    fn parse(packet: &[u8], direction: u32) -> Option<Self> {
        let (from, to) = addresses(&SlicedPacket::from_ip(packet).ok()?)?;
        let [from, to] = [from, to].map(|it| it.to_string());
        Some(Self {
            from,
            to,
            direction,
        })
    }
}
