//! A connection of a stack, for whoever reads and writes it.

use std::{
    fmt,
    future::poll_fn,
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use smoltcp::socket::tcp::{RecvError, State};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    flow::{Flow, Inner},
    shared::Shared,
};
use convoy_network::Duplex;

/// A connection. Its bytes go to smoltcp's buffers, and packets to the device, in the thread that reads or writes.
///
/// Dropping it resets the connection if something was not read, and else lets what was written be delivered.
pub(super) struct FlowStream {
    shared: Arc<Shared>,
    flow: Arc<Flow>,
}

impl fmt::Debug for FlowStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flow.fmt(f)
    }
}

impl FlowStream {
    pub(super) fn new(shared: Arc<Shared>, flow: Arc<Flow>) -> Self {
        Self { shared, flow }
    }

    /// Begins a connection; its SYN is on its way.
    pub(super) fn connect(shared: &Arc<Shared>, to: SocketAddr) -> io::Result<Self> {
        Ok(Self::new(Arc::clone(shared), shared.connect(to)?))
    }

    /// Waits until the other end has answered.
    pub(super) async fn connected(&self) -> io::Result<()> {
        poll_fn(|context| {
            let mut inner = self.flow.lock();
            match inner.state() {
                State::SynSent | State::SynReceived => {
                    inner.wake_when_sent(context.waker());
                    Poll::Pending
                }
                State::Closed => Poll::Ready(Err(failure(&inner))),
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }
}

/// Returns why a connection has ended early.
fn failure(inner: &Inner) -> io::Error {
    inner.error.unwrap_or(ErrorKind::ConnectionReset).into()
}

impl AsyncRead for FlowStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.flow.lock();
        let socket = inner.socket();
        let received = socket.recv_slice(buffer.initialize_unfilled());
        match received {
            Ok(0) if buffer.remaining() > 0 => {
                socket.register_recv_waker(context.waker());
                Poll::Pending
            }
            Ok(length) => {
                buffer.advance(length);
                // The other end may have waited for room.
                self.shared.turn(&self.flow, &mut inner);
                Poll::Ready(Ok(()))
            }
            Err(RecvError::Finished) => Poll::Ready(Ok(())),
            Err(RecvError::InvalidState) => Poll::Ready(Err(failure(&inner))),
        }
    }
}

impl AsyncWrite for FlowStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.flow.lock();
        if inner.is_shut() && inner.state() != State::Closed {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let socket = inner.socket();
        match socket.send_slice(bytes) {
            Ok(0) if !bytes.is_empty() => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
            Ok(length) => {
                self.shared.turn(&self.flow, &mut inner);
                Poll::Ready(Ok(length))
            }
            Err(_) if inner.state() == State::Closed => Poll::Ready(Err(failure(&inner))),
            Err(_) => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.flow.lock();
        inner.shut();
        self.shared.turn(&self.flow, &mut inner);
        Poll::Ready(Ok(()))
    }
}

impl Duplex for FlowStream {
    fn local_address(&self) -> Option<SocketAddr> {
        Some(self.flow.tuple.local)
    }

    fn poll_delivered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.flow.lock();
        let socket = inner.socket();
        if socket.send_queue() == 0 || !socket.is_active() {
            return Poll::Ready(());
        }
        socket.register_send_waker(context.waker());
        Poll::Pending
    }

    fn poll_failed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.flow.lock();
        if inner.state() == State::Closed && inner.error.is_some() {
            return Poll::Ready(());
        }
        inner.socket().register_recv_waker(context.waker());
        Poll::Pending
    }

    fn reset(&mut self) {
        let mut inner = self.flow.lock();
        inner.socket().abort();
        self.shared.turn(&self.flow, &mut inner);
    }
}

impl Drop for FlowStream {
    fn drop(&mut self) {
        self.shared.abandon([Arc::clone(&self.flow)]);
    }
}
