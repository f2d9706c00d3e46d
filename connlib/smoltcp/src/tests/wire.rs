//! The tunnel's end of a device in the hands of a test.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use convoy_packet::{
    checksum::sum,
    packet::{ICMPV4, Packet, transport_sum, write_ip_header},
    segment::{Plain, Segment, Tuple, write_segment},
    vnet::{VNET_LEN, VnetHeader},
};

/// The tunnel's end of a device.
pub(super) struct Wire(pub(super) OwnedFd);

impl Wire {
    pub(super) fn send(&self, packet: &[u8]) {
        let message = [&[0; VNET_LEN], packet].concat();
        while rustix::io::write(&self.0, &message).is_err() {
            is_ready(&self.0, PollFlags::OUT);
        }
    }

    /// The next packet.
    pub(super) fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 70_000];
        assert!(is_ready(&self.0, PollFlags::IN), "nothing came");
        let length = rustix::io::read(&self.0, &mut buffer).unwrap();
        buffer[VNET_LEN..length].to_vec()
    }
}

pub(super) fn is_ready(fd: impl AsFd, flags: PollFlags) -> bool {
    is_ready_within(fd, flags, DEADLINE)
}

pub(super) fn is_ready_within(fd: impl AsFd, flags: PollFlags, within: Duration) -> bool {
    let limit = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(&fd, flags)], Some(&limit)).unwrap() > 0
}

pub(super) fn scene() -> (Stack, Wire) {
    let (device, tunnels) = device_pair().unwrap();
    (stack(device, [A, A6], 1420), Wire(tunnels))
}

/// A packet with this payload, whose checksum is at an offset.
pub(super) fn packet(from: &str, to: &str, protocol: u8, payload: &[u8], sum_at: usize) -> Vec<u8> {
    let [from, to]: [IpAddr; 2] = [from, to].map(|it| it.parse().unwrap());
    let mut packet = vec![0; 40 + payload.len()];
    let at = write_ip_header(&mut packet, from, to, protocol, payload.len());
    packet.truncate(at + payload.len());
    packet[at..].copy_from_slice(payload);
    let sum = match protocol {
        ICMPV4 => !sum(payload),
        _ => !transport_sum(from, to, protocol, payload),
    };
    packet[at + sum_at..at + sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    packet
}

pub(super) fn segment(ends: Tuple, flags: u8, sequence: u32, acknowledged: u32) -> Vec<u8> {
    let mut packet = vec![0; 60];
    let plain = Plain {
        flags,
        sequence,
        acknowledged,
        ..Plain::default()
    };
    let length = write_segment(&mut packet, ends, plain);
    packet.truncate(length);
    packet
}

pub(super) fn parsed(packet: &[u8]) -> (u8, Segment) {
    let packet = Packet::parse(VnetHeader::default(), packet).unwrap();
    (packet.protocol, Segment::parse(packet.payload()).unwrap())
}
