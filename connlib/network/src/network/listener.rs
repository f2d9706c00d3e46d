use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    task::{Context, Poll},
};

use tokio::net::TcpListener;

use super::Stream;

/// Accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A listening TCP socket of the kernel.
    Kernel(TcpListener),
    /// A listener that is not a socket.
    Other(Box<dyn Accept>),
}

/// Accepts connections for one task.
pub trait Accept: fmt::Debug + Send + Sync {
    /// Returns where it listens.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Polls for the next connection and its other end's address. Wakes the task that has called it last.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>>;
}

impl Listener {
    /// Returns where it listens.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(listener) => listener.local_addr(),
            Self::Other(listener) => listener.local_addr(),
        }
    }

    /// Waits for the next connection; returns it and its other end's address.
    ///
    /// # Errors
    /// The errors of accept(2).
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Kernel(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((stream.into(), address))
            }
            Self::Other(listener) => poll_fn(|context| listener.poll_accept(context)).await,
        }
    }
}
