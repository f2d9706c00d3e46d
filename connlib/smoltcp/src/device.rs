//! A socket pair in the place of a TUN: each message is a virtio header with a packet behind it.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

use convoy_packet::{
    counters::{Counters, Dropped},
    packet::LONGEST_PACKET,
    vnet::VNET_LEN,
};

/// The longest message.
pub(super) const LONGEST_MESSAGE: usize = VNET_LEN + LONGEST_PACKET;

/// Bytes that may wait in each direction of the pair: 64 super-packets. The kernel grants less where its
/// `net.core.wmem_max` is smaller, and counts its own overhead in.
const QUEUE: usize = 64 * LONGEST_MESSAGE;

/// Messages that wait while the socket is full. Flows stop before that: what comes here was under way already.
const MAX_PENDING: usize = 64;

/// Both ends of a device: that of the stack and that of the tunnel. Neither blocks.
///
/// # Errors
/// The errors of socketpair(2).
pub fn device_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, tunnels) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for end in [&ours, &tunnels] {
        sockopt::set_socket_send_buffer_size(end, QUEUE)?;
    }
    Ok((ours, tunnels))
}

/// The stack's end.
#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
    /// Wakes the thread that waits for packets and room.
    bell: OwnedFd,
    is_blocked: AtomicBool,
    is_gone: AtomicBool,
    /// Messages that wait for room.
    pending: Mutex<VecDeque<Box<[u8]>>>,
}

impl Device {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            fd,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_blocked: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            pending: Mutex::default(),
        })
    }

    /// Returns whether nothing can be sent for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Acquire)
    }

    /// Returns whether the other end was closed.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Receives a message; its length, which is more than the buffer's if it did not fit.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (_, length) = recv(
            &self.fd,
            &mut *buffer,
            RecvFlags::DONTWAIT | RecvFlags::TRUNC,
        )?;
        if length == 0 {
            // There are no empty messages: the other end was closed.
            self.is_gone.store(true, Ordering::Relaxed);
        }
        Ok(length)
    }

    /// Sends a message, now or once the socket has room.
    pub(super) fn send(&self, message: &[u8], counters: &Counters) {
        if self.is_blocked() {
            return self.hold(message, counters);
        }
        match send(&self.fd, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.hold(message, counters),
            Err(error) => self.fail(&error.into(), counters),
        }
    }

    /// As [`Self::send`], for what may as well be discarded; `WouldBlock` says that it was.
    pub(super) fn try_send(&self, message: &[u8], counters: &Counters) -> io::Result<()> {
        if self.is_blocked() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let sent = send(&self.fd, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| {
            let error = io::Error::from(error);
            if error.kind() != ErrorKind::WouldBlock {
                self.fail(&error, counters);
            }
            error
        })
    }

    fn fail(&self, error: &io::Error, counters: &Counters) {
        counters.drop(Dropped::DeviceFailed);
        let gone = [
            ErrorKind::BrokenPipe,
            ErrorKind::ConnectionReset,
            ErrorKind::NotConnected,
        ];
        if gone.contains(&error.kind()) {
            self.is_gone.store(true, Ordering::Relaxed);
        }
    }

    fn hold(&self, message: &[u8], counters: &Counters) {
        let mut pending = self.pending();
        if !self.is_blocked.swap(true, Ordering::AcqRel) {
            // The thread may wait for packets alone.
            self.ring();
        }
        if pending.len() < MAX_PENDING {
            pending.push_back(message.into());
        } else {
            counters.drop(Dropped::DeviceFull);
        }
    }

    /// Calls `note` if there is no room, before any flush can find room; returns whether it did.
    pub(super) fn wait(&self, note: impl FnOnce()) -> bool {
        let _pending = self.pending();
        let is_blocked = self.is_blocked();
        if is_blocked {
            note();
        }
        is_blocked
    }

    /// Sends what waits. Once all of it has gone, `take` says who has noted that it has more.
    pub(super) fn flush<T>(&self, counters: &Counters, take: impl FnOnce() -> Vec<T>) -> Vec<T> {
        let mut pending = self.pending();
        while let Some(message) = pending.front() {
            match send(&self.fd, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Vec::new(),
                Err(error) => self.fail(&error.into(), counters),
            }
            pending.pop_front();
        }
        self.is_blocked.store(false, Ordering::Release);
        take()
    }

    /// Waits until there is a packet or a ring, or room if that is lacking, or until the time is over.
    pub(super) fn wait_for_any(&self, timeout: Option<Timespec>) {
        let wanted = match self.is_blocked() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let mut waits = [
            PollFd::new(&self.fd, wanted),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        // An interruption is a wake-up too.
        let _ = poll(&mut waits, timeout.as_ref());
        if !waits[1].revents().is_empty() {
            // Nothing else reads it.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Ends [`Self::wait_for_any`].
    pub(super) fn ring(&self) {
        // Full only if the thread is to wake anyway.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Tells the other end that nothing follows, however long streams keep this end open.
    pub(super) fn close(&self) {
        // Fails if the other end was closed.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<Box<[u8]>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
