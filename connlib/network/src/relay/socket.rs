//! A socket whose urgent data is seen without asking for it.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    task::{Context, Poll, ready},
};

use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use tokio::io::{Interest, unix::AsyncFd};

/// A connected socket, registered for urgent data, too.
#[derive(Debug)]
pub(super) struct Socket(AsyncFd<TcpStream>);

impl Socket {
    pub(super) fn new(socket: tokio::net::TcpStream) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        // SAFETY: the descriptor is open, and nothing else closes it while the `AsyncFd` owns it.
        let socket = unsafe { AsyncFd::register_with_interest(socket.into_std()?, interest) };
        Ok(Self(socket?))
    }

    /// Waits until it has failed; the error stays for whoever reads or writes.
    pub(super) async fn failed(&self) {
        if self.0.ready(Interest::ERROR).await.is_err() {
            // The runtime ends.
            std::future::pending().await
        }
    }

    pub(super) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_read_ready(context))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_write_ready(context))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Calls `read` if there may be something to read; `WouldBlock` says that there is not.
    pub(super) fn try_read<R>(&self, read: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.0.try_io(Interest::READABLE, |_| read())
    }

    /// Calls `write` if there may be room; `WouldBlock` says that there is not.
    pub(super) fn try_write<R>(&self, write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.0.try_io(Interest::WRITABLE, |_| write())
    }

    /// Receives if urgent data may have arrived.
    pub(super) fn receive_urgent(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::PRIORITY, |_| self.receive(buffer))
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.fd(), buffer, MsgFlags::MSG_DONTWAIT)?)
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd(), bytes, MsgFlags::MSG_NOSIGNAL)?)
    }

    /// Sends FIN.
    pub(super) fn end(&self) -> io::Result<()> {
        Ok(shutdown(self.fd(), Shutdown::Write)?)
    }

    fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
