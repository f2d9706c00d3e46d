use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A connection, which the relay moves bytes between.
#[derive(Debug)]
pub enum Stream {
    /// A TCP socket of the kernel, in whatever namespace.
    Kernel(TcpStream),
    /// A connection that is not a socket.
    Other(Box<dyn Duplex>),
}

/// Reads and writes bytes, and can close each direction by itself.
pub trait Duplex: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {
    /// This end's address, if it has one.
    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Waits until the other end has acknowledged all that was written, or is gone.
    fn poll_delivered(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Waits until the connection has failed, even if no task reads. Only a task that reads and writes it calls this.
    fn poll_failed(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Ends the connection at once; the other end sees a failure (RST), not an end (FIN).
    fn reset(&mut self) {}
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Kernel(stream)
    }
}

impl Stream {
    /// This end's address, if it has one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr().ok(),
            Self::Other(stream) => stream.local_address(),
        }
    }

    /// Ends a connection by RST in place of FIN, at the latest when it is dropped.
    pub fn close_by_reset(&mut self) {
        match self {
            // Fails only on a socket that has ended.
            Self::Kernel(socket) => drop(socket.set_zero_linger()),
            Self::Other(stream) => stream.reset(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Other(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kernel(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Other(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(socket) => Pin::new(socket).poll_flush(context),
            Self::Other(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Other(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// The twin of a connection in memory.
impl Duplex for tokio::io::DuplexStream {}
