//! Several datagrams a system call: `sendmmsg` and `recvmmsg`.

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::{mem, ptr};

use nix::errno::Errno;

use super::{HEADER, header};

/// Datagrams in one call.
pub(super) const BATCH: usize = 64;

/// Packets of one flow, ready to be numbered and sent.
pub(super) struct Outbox {
    run: u64,
    slots: Slots,
}

impl Outbox {
    pub(super) fn new(payload: usize, run: u64) -> Self {
        Self {
            run,
            slots: Slots::new(payload),
        }
    }

    /// Sends up to `count` packets numbered from `first`, in one call, and returns how many.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        first: u64,
        count: u64,
    ) -> Result<u64, Errno> {
        let count = count.min(BATCH as u64) as usize;
        for (number, packet) in (first..).zip(self.slots.packets_mut().take(count)) {
            let header = header(self.run, number);
            packet[..header.len()].copy_from_slice(&header);
        }
        let headers = self.slots.headers.as_mut_ptr();
        // SAFETY: `headers` points to at least `count` headers, whose buffers `slots` keeps alive.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, count as u32, 0) };
        Errno::result(sent).map(|sent| sent as u64)
    }
}

/// Room for the beginnings of one batch of received packets: what is behind the header is not
/// looked at, and so not copied.
pub(super) struct Inbox {
    slots: Slots,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            slots: Slots::new(HEADER),
        }
    }

    /// Waits for a packet and takes those that are there, [`BATCH`] at most; `EAGAIN` at the socket's timeout.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
    ) -> Result<impl ExactSizeIterator<Item = &[u8]>, Errno> {
        let headers = self.slots.headers.as_mut_ptr();
        // SAFETY: `headers` points to `BATCH` headers, whose buffers `slots` keeps alive.
        let received = Errno::result(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                BATCH as u32,
                libc::MSG_WAITFORONE as _,
                ptr::null_mut(),
            )
        })?;
        Ok(self.slots.filled().take(received as usize))
    }
}

/// Packets that the socket dropped for want of buffer space.
pub(super) fn socket_drops(socket: &UdpSocket) -> Result<u64, Errno> {
    /// `SK_MEMINFO_DROPS` and `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
    const DROPS: usize = 8;
    const VARS: usize = 9;
    let mut values = [0_u32; VARS];
    let mut length = mem::size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` and `length` outlive the call and `length` is the size of `values`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(result).map(|_| u64::from(values[DROPS]))
}

/// A batch of equal buffers and the headers that point to them.
struct Slots {
    payload: usize,
    // INVARIANT: neither vector is ever grown, so that the pointers in `headers` stay valid: they
    // lead to `vectors`, and from there to `bytes`.
    bytes: Vec<u8>,
    #[expect(dead_code, reason = "kept alive for the pointers in `headers`")]
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl Slots {
    fn new(payload: usize) -> Self {
        let mut bytes = vec![0; payload * BATCH];
        let mut vectors: Vec<_> = bytes
            .chunks_exact_mut(payload)
            .map(|packet| libc::iovec {
                iov_base: packet.as_mut_ptr().cast(),
                iov_len: payload,
            })
            .collect();
        let headers = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: all zero is a header without address, buffers and control messages.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self {
            payload,
            bytes,
            vectors,
            headers,
        }
    }

    fn packets_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.payload)
    }

    /// The received part of each buffer.
    fn filled(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bytes
            .chunks_exact(self.payload)
            .zip(&self.headers)
            .map(|(packet, header)| &packet[..self.payload.min(header.msg_len as usize)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::udp::parse;

    #[test]
    fn a_batch_arrives_in_its_order() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();

        let mut outbox = Outbox::new(100, 9);
        assert_eq!(outbox.send(&sender, 40, 5), Ok(5));

        let mut inbox = Inbox::new();
        let mut numbers = Vec::new();
        while numbers.len() < 5 {
            let packets = inbox.receive(&receiver).unwrap();
            numbers.extend(packets.map(|packet| {
                assert_eq!(packet.len(), HEADER);
                parse(packet).unwrap()
            }));
        }
        let expected: Vec<_> = (40..45).map(|number| (9, number)).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn a_call_sends_one_batch_at_most() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let sent = Outbox::new(16, 1).send(&sender, 0, 10_000);
        assert_eq!(sent, Ok(BATCH as u64));
    }

    #[test]
    fn a_full_socket_counts_its_drops() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(socket_drops(&receiver), Ok(0));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut outbox = Outbox::new(10_000, 1);
        for _ in 0..40 {
            outbox.send(&sender, 0, 64).unwrap();
        }
        assert!(socket_drops(&receiver).unwrap() > 0);
    }
}
