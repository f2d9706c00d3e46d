//! Writing a batch: each train as one super-packet, every other packet by itself.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    MAX_BATCH_PACKETS,
    checksum::{fold, pseudo_header, sum},
    coalesce::{Packet, Shape, Train, Trains},
    device::{PacketIo, Stop},
    inbound::Inbound,
    ip::{self, MAX_PACKET, set_word, tcp, udp, v4, v6},
    vnet::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VNET_LEN, VnetHeader},
};

/// What the writing of packets came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterCounters {
    /// System calls.
    pub writes: u64,
    /// Successful writes, by the number of packets that each carried.
    pub packets_per_write: [u64; MAX_BATCH_PACKETS + 1],
    /// Packets that were lost.
    pub failed: FailedPackets,
    /// Packets kept out of their train because a checksum of theirs is wrong; written as they are.
    pub bad_checksums: u64,
    /// Super-packets that the kernel refused, whose packets were then written one by one.
    pub refused_trains: u64,
}

/// Packets that a write lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedPackets {
    /// `EIO`: the link is down.
    pub link_down: u64,
    /// `ENOBUFS` or `ENOMEM`; `EAGAIN` where the event loop wrote and could not wait.
    pub no_memory: u64,
    /// `EINVAL`: the kernel takes it for no IP packet.
    pub refused: u64,
    /// `EBADFD`: the interface was deleted.
    pub deleted: u64,
    /// Only part of it was taken, or any other error.
    pub other: u64,
}

impl Default for WriterCounters {
    fn default() -> Self {
        Self {
            writes: 0,
            packets_per_write: [0; MAX_BATCH_PACKETS + 1],
            failed: FailedPackets::default(),
            bad_checksums: 0,
            refused_trains: 0,
        }
    }
}

impl WriterCounters {
    fn settle(&mut self, outcome: io::Result<()>, packets: usize) {
        match outcome {
            Ok(()) => self.packets_per_write[packets] += 1,
            Err(error) => self.failed.count(&error, packets),
        }
    }

    /// Adds `other` to this, and sets it to zero.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        let other = std::mem::take(other);
        self.writes += other.writes;
        for (mine, theirs) in self
            .packets_per_write
            .iter_mut()
            .zip(other.packets_per_write)
        {
            *mine += theirs;
        }
        self.failed.link_down += other.failed.link_down;
        self.failed.no_memory += other.failed.no_memory;
        self.failed.refused += other.failed.refused;
        self.failed.deleted += other.failed.deleted;
        self.failed.other += other.failed.other;
        self.bad_checksums += other.bad_checksums;
        self.refused_trains += other.refused_trains;
    }
}

impl FailedPackets {
    fn count(&mut self, error: &io::Error, packets: usize) {
        let counter = match error.raw_os_error() {
            Some(libc::EIO) => &mut self.link_down,
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => &mut self.no_memory,
            Some(libc::EINVAL) => &mut self.refused,
            Some(libc::EBADFD) => &mut self.deleted,
            _ => &mut self.other,
        };
        *counter += packets as u64;
    }
}

/// Where the packets of a train are joined, behind a virtio header; the packet is on a cache line.
pub(crate) const JOINED_BYTES: usize = JOINED_START + MAX_PACKET;
const JOINED_START: usize = 64;

/// Writes batches to a device.
#[derive(Debug)]
pub(crate) struct BatchWriter {
    pub(crate) io: Arc<dyn PacketIo>,
    /// Whether virtio headers are written.
    pub(crate) vnet_hdr: bool,
    /// Set for good when the kernel refuses a super-packet.
    pub(crate) is_refused: Arc<AtomicBool>,
    /// Ends a wait for the kernel; where there is none, nothing is waited for.
    pub(crate) stop: Option<Arc<Stop>>,
    joined: Box<[u8]>,
}

impl BatchWriter {
    pub(crate) fn new(
        io: Arc<dyn PacketIo>,
        vnet_hdr: bool,
        is_refused: Arc<AtomicBool>,
        stop: Option<Arc<Stop>>,
    ) -> Self {
        let joined = vec![0; JOINED_BYTES].into_boxed_slice();
        Self {
            io,
            vnet_hdr,
            is_refused,
            stop,
            joined,
        }
    }

    /// Writes everything in the batch, train by train.
    pub(crate) fn write(&mut self, batch: &mut Inbound) {
        let Inbound {
            buffer,
            trains,
            counters,
            ..
        } = batch;
        for train in trains.trains() {
            if train.packets > 1 && !self.is_refused.load(Ordering::Relaxed) {
                self.write_train(buffer, trains, train, counters);
            } else {
                for packet in trains.packets_of(train) {
                    self.write_single(buffer, packet, counters);
                }
            }
        }
    }

    /// Joins the packets whose checksums are right. A wrong one is written by itself, where it stood:
    /// joining it would make it right.
    fn write_train(
        &mut self,
        buffer: &mut [u8],
        trains: &Trains,
        train: &Train,
        counters: &mut WriterCounters,
    ) {
        let mut run = Run::default();
        for (nth, packet) in trains.packets_of(train).enumerate() {
            let bytes = &buffer[packet.start..packet.end];
            if !is_intact(bytes, train.shape) {
                counters.bad_checksums += 1;
                self.write_run(buffer, trains, train, run, counters);
                self.write_single(buffer, packet, counters);
                run = Run {
                    first: nth + 1,
                    ..Run::default()
                };
                continue;
            }
            let header_len = if run.packets == 0 {
                0
            } else {
                train.shape.header_len
            };
            let piece = &bytes[header_len..];
            let at = JOINED_START + run.len;
            self.joined[at..at + piece.len()].copy_from_slice(piece);
            run.len += piece.len();
            run.packets += 1;
        }
        self.write_run(buffer, trains, train, run, counters);
    }

    fn write_run(
        &mut self,
        buffer: &mut [u8],
        trains: &Trains,
        train: &Train,
        run: Run,
        counters: &mut WriterCounters,
    ) {
        let packets = || trains.packets_of(train).skip(run.first).take(run.packets);
        if run.packets > 1 {
            let is_pushed = packets().last().is_some_and(|last| {
                train.shape.is_tcp
                    && buffer[last.start + train.shape.transport + tcp::FLAGS] & tcp::PSH != 0
            });
            let joined = &mut self.joined[JOINED_START - VNET_LEN..JOINED_START + run.len];
            complete(joined, train.shape, is_pushed);
            match put(
                &*self.io,
                self.stop.as_deref(),
                joined,
                &mut counters.writes,
            ) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    tracing::warn!(
                        "the kernel refuses super-packets: coalescing is off from now on"
                    );
                    self.is_refused.store(true, Ordering::Relaxed);
                    counters.refused_trains += 1;
                }
                outcome => return counters.settle(outcome, run.packets),
            }
        }
        for packet in packets() {
            self.write_single(buffer, packet, counters);
        }
    }

    fn write_single(&self, buffer: &mut [u8], packet: Packet, counters: &mut WriterCounters) {
        let mut start = packet.start;
        if self.vnet_hdr {
            start -= VNET_LEN;
            buffer[start..packet.start].copy_from_slice(&VnetHeader::default().to_bytes());
        }
        let bytes = &buffer[start..packet.end];
        let outcome = put(&*self.io, self.stop.as_deref(), bytes, &mut counters.writes);
        counters.settle(outcome, 1);
    }
}

/// Successive packets of a train that are joined.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Which packet of the train is the first.
    first: usize,
    packets: usize,
    /// Bytes joined so far.
    len: usize,
}

/// Whether the checksums are right that joining the packet would replace.
fn is_intact(packet: &[u8], shape: Shape) -> bool {
    let protocol = if shape.is_tcp { ip::TCP } else { ip::UDP };
    let addresses = if shape.is_v4 {
        v4::ADDRESSES
    } else {
        v6::ADDRESSES
    };
    let transport = &packet[shape.transport..];
    let pseudo = pseudo_header(&packet[addresses], protocol, transport.len() as u16);
    let is_network_intact = !shape.is_v4 || sum(&packet[..v4::HEADER_LEN]) == 0xffff;
    is_network_intact && fold(u32::from(pseudo) + u32::from(sum(transport))) == 0xffff
}

/// Makes the header of the first packet that of the super-packet, and puts the virtio header before it.
fn complete(joined: &mut [u8], shape: Shape, is_pushed: bool) {
    let (vnet, packet) = joined.split_at_mut(VNET_LEN);
    let len = packet.len();
    let transport = shape.transport;
    let (addresses, gso_type) = if shape.is_v4 {
        set_word(packet, v4::TOTAL_LEN, len as u16);
        set_word(packet, v4::CHECKSUM, 0);
        let checksum = !sum(&packet[..v4::HEADER_LEN]);
        set_word(packet, v4::CHECKSUM, checksum);
        (v4::ADDRESSES, GSO_TCPV4)
    } else {
        set_word(packet, v6::PAYLOAD_LEN, (len - v6::HEADER_LEN) as u16);
        (v6::ADDRESSES, GSO_TCPV6)
    };
    let transport_len = (len - transport) as u16;
    let (protocol, gso_type, checksum_at) = if shape.is_tcp {
        if is_pushed {
            packet[transport + tcp::FLAGS] |= tcp::PSH;
        }
        (ip::TCP, gso_type, tcp::CHECKSUM)
    } else {
        set_word(packet, transport + udp::LENGTH, transport_len);
        (ip::UDP, GSO_UDP_L4, udp::CHECKSUM)
    };
    let pseudo = pseudo_header(&packet[addresses], protocol, transport_len);
    set_word(packet, transport + checksum_at, pseudo);
    let header = VnetHeader {
        flags: NEEDS_CSUM,
        gso_type,
        hdr_len: shape.header_len as u16,
        gso_size: shape.payload_len as u16,
        csum_start: transport as u16,
        csum_offset: checksum_at as u16,
    };
    vnet.copy_from_slice(&header.to_bytes());
}

/// Writes all of `bytes` in one call, and waits for the kernel to have room where `stop` allows it.
fn put(io: &dyn PacketIo, stop: Option<&Stop>, bytes: &[u8], writes: &mut u64) -> io::Result<()> {
    loop {
        *writes += 1;
        let error = match io.write(bytes) {
            Ok(len) if len == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) => error,
        };
        match (error.raw_os_error(), stop) {
            (Some(libc::EINTR), _) => {}
            (Some(libc::EAGAIN), Some(stop)) if io.wait_writable(stop)? => {}
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
