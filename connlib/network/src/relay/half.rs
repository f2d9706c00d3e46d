//! A stream that both directions use.

use std::{
    future::poll_fn,
    io,
    os::fd::AsRawFd,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use nix::sys::socket::{Shutdown, shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::resets::Resets;
use crate::network::{Duplex, Stream};

/// A stream that one task both reads and writes.
#[derive(Clone, Copy)]
pub(super) enum Half<'a> {
    Kernel(&'a Borrowed<'a>),
    Other(&'a Shared<'a>),
}

/// A socket of the kernel.
pub(super) struct Borrowed<'a> {
    socket: &'a TcpStream,
    resets: Resets,
}

/// A stream that is not a socket.
pub(super) type Shared<'a> = Mutex<&'a mut Box<dyn Duplex>>;

/// A stream in a form that [`Half`] can be taken of.
pub(super) enum Whole<'a> {
    Kernel(Borrowed<'a>),
    Other(Shared<'a>),
}

impl<'a> Whole<'a> {
    pub(super) fn new(stream: &'a mut Stream) -> Self {
        match stream {
            Stream::Kernel(socket) => Self::Kernel(Borrowed {
                socket,
                resets: Resets::default(),
            }),
            Stream::Other(stream) => Self::Other(Mutex::new(stream)),
        }
    }

    pub(super) fn half(&'a self) -> Half<'a> {
        match self {
            Self::Kernel(socket) => Half::Kernel(socket),
            Self::Other(shared) => Half::Other(shared),
        }
    }
}

/// Waits until a socket has failed; the error stays for whoever reads or writes.
async fn failed(socket: &TcpStream) {
    if socket.ready(Interest::ERROR).await.is_err() {
        // The runtime ends.
        std::future::pending().await
    }
}

impl Half<'_> {
    /// Waits until the stream has failed.
    pub(super) async fn failed(self) {
        match self {
            Self::Kernel(kernel) => failed(kernel.socket).await,
            Self::Other(shared) => {
                poll_fn(|context| with(shared, |stream| stream.poll_failed(context))).await;
            }
        }
    }
}

fn with<R>(shared: &Shared<'_>, take: impl FnOnce(&mut Box<dyn Duplex>) -> R) -> R {
    take(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

impl AsyncRead for Half<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Borrowed { socket, resets } = match *self {
            Half::Kernel(kernel) => kernel,
            Half::Other(shared) => {
                return with(shared, |stream| Pin::new(stream).poll_read(context, buffer));
            }
        };
        loop {
            ready!(socket.poll_read_ready(context))?;
            match socket.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(resets.tell(read)?);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Half<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Borrowed { socket, resets } = match *self {
            Half::Kernel(kernel) => kernel,
            Half::Other(shared) => {
                return with(shared, |stream| Pin::new(stream).poll_write(context, bytes));
            }
        };
        loop {
            ready!(socket.poll_write_ready(context))?;
            match resets.note(socket.try_write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {
            Half::Kernel(_) => Poll::Ready(Ok(())),
            Half::Other(shared) => with(shared, |stream| Pin::new(stream).poll_flush(context)),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {
            Half::Kernel(kernel) => {
                let outcome = shutdown(kernel.socket.as_raw_fd(), Shutdown::Write);
                Poll::Ready(outcome.map_err(io::Error::from))
            }
            Half::Other(shared) => with(shared, |stream| Pin::new(stream).poll_shutdown(context)),
        }
    }
}
