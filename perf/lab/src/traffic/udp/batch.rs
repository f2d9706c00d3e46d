//! Datagrams in batches: one system call sends or receives several.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, sendmmsg};
use nix::sys::stat::fstat;

/// Bytes of mark and number at the start of each packet.
pub(crate) const HEADER: usize = 16;
/// Datagrams per call.
pub(super) const BATCH: usize = 64;

/// Packets of one flow, ready to be numbered and sent.
pub(super) struct Outbox {
    run: u64,
    payload: usize,
    packets: Vec<u8>,
    headers: MultiHeaders<()>,
}

impl Outbox {
    pub(super) fn new(payload: usize, run: u64) -> Self {
        Self {
            run,
            payload,
            packets: vec![0; payload * BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    /// Sends up to `count` packets in one call, numbered from `first`; returns how many were sent.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        first: u64,
        count: u64,
    ) -> Result<u64, Errno> {
        let count = count.min(BATCH as u64) as usize;
        let mut packets = Vec::with_capacity(BATCH);
        let places = self.packets.chunks_exact_mut(self.payload);
        for (number, packet) in (first..).zip(places).take(count) {
            packet[..8].copy_from_slice(&self.run.to_le_bytes());
            packet[8..HEADER].copy_from_slice(&number.to_le_bytes());
            packets.push([IoSlice::new(packet)]);
        }
        let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
        let sent = sendmmsg(fd, &mut self.headers, &packets, [None; BATCH], [], flags)?;
        Ok(sent.count() as u64)
    }
}

/// Buffers for the start of each packet in a received batch: the rest is not copied.
pub(super) struct Inbox {
    packets: [[u8; HEADER]; BATCH],
    headers: MultiHeaders<()>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            packets: [[0; HEADER]; BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    /// Waits for a packet and takes those available, [`BATCH`] at most. Returns their marks and numbers,
    /// without packets that are too short. `EAGAIN` at the socket's timeout.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> Result<Vec<Option<(u64, u64)>>, Errno> {
        let mut buffers = self.packets.each_mut().map(|p| [IoSliceMut::new(p)]);
        let (fd, wait) = (socket.as_raw_fd(), MsgFlags::MSG_WAITFORONE);
        let received = recvmmsg(fd, &mut self.headers, &mut buffers, wait, None)?;
        let lengths: Vec<usize> = received.map(|message| message.bytes).collect();
        let packets = lengths.iter().zip(&self.packets);
        Ok(packets
            .map(|(length, packet)| parse(&packet[..HEADER.min(*length)]))
            .collect())
    }
}

/// The mark and the number of a packet; `None` if it is too short.
fn parse(packet: &[u8]) -> Option<(u64, u64)> {
    let (run, rest) = packet.split_first_chunk()?;
    let number = rest.first_chunk()?;
    Some((u64::from_le_bytes(*run), u64::from_le_bytes(*number)))
}

/// Number of packets that the socket dropped because its buffer was full.
pub(super) fn socket_drops(socket: &UdpSocket) -> Result<u64, Errno> {
    // net/ipv4/udp.c, udp4_format_sock: the inode is the tenth field, the drops are the last.
    let inode = fstat(socket)?.st_ino.to_string();
    let tables = ["udp", "udp6"].map(|table| format!("/proc/thread-self/net/{table}"));
    let mut tables = tables.iter().flat_map(fs::read_to_string);
    let drops = |line: &str| {
        let mut fields = line.split_whitespace().skip(9);
        (fields.next()? == inode).then(|| fields.last()?.parse().ok())?
    };
    let found = tables.find_map(|table| table.lines().find_map(drops));
    found.ok_or(Errno::ENOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_sends_one_batch_at_most_and_a_full_socket_counts_its_drops() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        assert_eq!(socket_drops(&receiver), Ok(0));
        let mut outbox = Outbox::new(10_000, 1);
        for _ in 0..40 {
            assert_eq!(outbox.send(&sender, 0, 10_000), Ok(BATCH as u64));
        }
        assert!(socket_drops(&receiver).unwrap() > 0);
    }
}
