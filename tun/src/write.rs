//! Writes a batch: each train as one super-packet, every other packet by itself.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use convoy_packet::{
    checksum::{fold, pseudo_header, sum},
    vnet::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VNET_LEN, VnetHeader},
};

use crate::{
    coalesce::{Packet, Shape, Train, Trains},
    counters::WriterCounters,
    device::{PacketIo, Stop},
    inbound::InboundBuffer,
    ip::{self, MAX_PACKET, set_word, tcp, udp, v4, v6},
};

/// Bytes of the buffer in which trains are joined. The super-packet begins on a cache line, behind its
/// virtio header.
pub(crate) const JOINED_BYTES: usize = JOINED_START + MAX_PACKET;
const JOINED_START: usize = 64;

/// Writes batches to a device.
#[derive(Debug)]
pub(crate) struct BatchWriter {
    pub(crate) io: Arc<dyn PacketIo>,
    /// Whether virtio headers are written.
    pub(crate) vnet_hdr: bool,
    /// Set when the kernel refuses a super-packet.
    pub(crate) is_refused: Arc<AtomicBool>,
    /// Ends a wait for room in the kernel; without it, a full kernel is [`Blocked`] at once.
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

    /// Writes what is left of the batch, train by train.
    ///
    /// # Errors
    /// [`Blocked`] if the kernel has no room: the batch remembers how far it was written.
    #[inline(never)]
    pub(crate) fn write(&mut self, batch: &mut InboundBuffer) -> Result<(), Blocked> {
        let InboundBuffer {
            buffer,
            trains,
            counters,
            written,
            ..
        } = batch;
        while let Some(train) = trains.trains().get(written.trains) {
            if train.packets > 1 && !self.is_refused.load(Ordering::Relaxed) {
                self.write_train(buffer, trains, train, &mut written.packets, counters)?;
            } else {
                let whole = Run::of_rest(train, written.packets);
                self.write_singles(buffer, trains, train, whole, &mut written.packets, counters)?;
            }
            written.trains += 1;
            written.packets = 0;
        }
        Ok(())
    }

    /// Joins the packets whose checksums are right. A packet with a wrong one is written by itself, in its
    /// place: joining would replace its checksum by a right one.
    fn write_train(
        &mut self,
        buffer: &mut [u8],
        trains: &Trains,
        train: &Train,
        written: &mut usize,
        counters: &mut WriterCounters,
    ) -> Result<(), Blocked> {
        let mut run = Run::after(*written);
        for (nth, packet) in trains.packets_of(train).enumerate().skip(*written) {
            let bytes = &buffer[packet.start..packet.end];
            if !is_intact(bytes, train.shape) {
                self.write_run(buffer, trains, train, run, written, counters)?;
                counters.bad_checksums += 1;
                self.write_single(buffer, packet, counters)?;
                *written = nth + 1;
                run = Run::after(*written);
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
        self.write_run(buffer, trains, train, run, written, counters)
    }

    fn write_run(
        &mut self,
        buffer: &mut [u8],
        trains: &Trains,
        train: &Train,
        run: Run,
        written: &mut usize,
        counters: &mut WriterCounters,
    ) -> Result<(), Blocked> {
        let mut packets = trains.packets_of(train).skip(run.first).take(run.packets);
        if run.packets > 1 {
            let is_pushed = packets.nth(run.packets - 1).is_some_and(|last| {
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
            )? {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    tracing::warn!(
                        "The kernel has refused a super-packet: coalescing is off for ten minutes"
                    );
                    self.is_refused.store(true, Ordering::Relaxed);
                    counters.refused_trains += 1;
                }
                outcome => {
                    counters.settle(outcome, run.packets);
                    *written = run.first + run.packets;
                    return Ok(());
                }
            }
        }
        self.write_singles(buffer, trains, train, run, written, counters)
    }

    fn write_singles(
        &self,
        buffer: &mut [u8],
        trains: &Trains,
        train: &Train,
        run: Run,
        written: &mut usize,
        counters: &mut WriterCounters,
    ) -> Result<(), Blocked> {
        for packet in trains.packets_of(train).skip(run.first).take(run.packets) {
            self.write_single(buffer, packet, counters)?;
            *written += 1;
        }
        Ok(())
    }

    fn write_single(
        &self,
        buffer: &mut [u8],
        packet: Packet,
        counters: &mut WriterCounters,
    ) -> Result<(), Blocked> {
        let mut start = packet.start;
        if self.vnet_hdr {
            start -= VNET_LEN;
            buffer[start..packet.start].copy_from_slice(&VnetHeader::default().to_bytes());
        }
        let bytes = &buffer[start..packet.end];
        let outcome = put(&*self.io, self.stop.as_deref(), bytes, &mut counters.writes)?;
        counters.settle(outcome, 1);
        Ok(())
    }
}

/// The kernel has no room, and the caller may not wait for it.
#[derive(Debug)]
pub(crate) struct Blocked;

/// Successive packets of a train that are joined.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The index of the first one within the train.
    first: usize,
    packets: usize,
    /// Bytes joined so far.
    len: usize,
}

impl Run {
    fn after(first: usize) -> Self {
        Self {
            first,
            packets: 0,
            len: 0,
        }
    }

    fn of_rest(train: &Train, first: usize) -> Self {
        Self {
            packets: train.packets - first,
            ..Self::after(first)
        }
    }
}

/// Returns whether the checksums that joining would replace are right.
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

/// Turns the header of the first packet into the super-packet's, and writes the virtio header before it.
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

/// Writes `bytes` in one call; with a `stop`, first waits until the kernel has room.
fn put(
    io: &dyn PacketIo,
    stop: Option<&Stop>,
    bytes: &[u8],
    writes: &mut u64,
) -> Result<io::Result<()>, Blocked> {
    loop {
        *writes += 1;
        let error = match io.write(bytes) {
            Ok(len) if len == bytes.len() => return Ok(Ok(())),
            Ok(_) => return Ok(Err(io::ErrorKind::WriteZero.into())),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => match stop.map(|stop| io.wait_writable(stop)) {
                Some(Ok(true)) => {}
                Some(Err(error)) => return Ok(Err(error)),
                Some(Ok(false)) | None => return Err(Blocked),
            },
            _ => return Ok(Err(error)),
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
