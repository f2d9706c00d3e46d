//! A socket of which both directions read and write without tokio's buffers.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    task::{Context, Poll},
};

use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use rustix::io::ioctl_fionread;
use tokio::{io::Interest, net::TcpStream};

use super::resets::Resets;

/// A connected socket.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    resets: Resets,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        let resets = Resets::default();
        Self { stream, resets }
    }

    /// Waits until it has failed; the error stays for whoever reads or writes.
    pub(super) async fn failed(&self) {
        if self.stream.ready(Interest::ERROR).await.is_err() {
            // The runtime ends.
            std::future::pending().await
        }
    }

    pub(super) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(context)
    }

    pub(super) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(context)
    }

    /// Calls `read` if there may be something to read; `WouldBlock` says that there is not.
    pub(super) fn try_read<R>(&self, read: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.stream.try_io(Interest::READABLE, read)
    }

    /// Calls `write` if there may be room; `WouldBlock` says that there is not.
    pub(super) fn try_write<R>(&self, write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.resets
            .note(self.stream.try_io(Interest::WRITABLE, write))
    }

    /// Returns whether there is nothing to read for now: further bytes and the end wake up whoever waits.
    ///
    /// A splice(2) that takes less than it may does not tell: it stops in front of urgent data.
    pub(super) fn is_drained(&self) -> bool {
        let asked = self.try_read(|| match ioctl_fionread(self)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            unread => Ok(unread),
        });
        asked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = recv(self.fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
        self.resets.tell(read)
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd(), bytes, MsgFlags::MSG_NOSIGNAL)?)
    }

    /// Sends FIN.
    pub(super) fn end(&self) -> io::Result<()> {
        Ok(shutdown(self.fd(), Shutdown::Write)?)
    }

    fn fd(&self) -> i32 {
        self.stream.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
