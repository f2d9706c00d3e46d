//! The stack's sockets for DNS queries.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd,
};
use tokio::time::timeout;

use super::{datagrams::StackDatagrams, shared::Shared, stream::FlowStream};
use convoy_network::{Packets, names::CONNECT_PATIENCE};

/// Opens connections and datagram sockets in the stack.
#[derive(Clone)]
pub(super) struct Inside {
    pub(super) shared: Arc<Shared>,
    pub(super) handle: TokioHandle,
}

impl RuntimeProvider for Inside {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = InsideDatagrams;
    type Tcp = AsyncIoTokioAsStd<FlowStream>;

    fn create_handle(&self) -> Self::Handle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        _: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let stream = FlowStream::connect(&shared, server)?;
            timeout(patience.unwrap_or(CONNECT_PATIENCE), stream.connected()).await??;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    /// Connects the socket, so that it hears the server alone.
    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let any = SocketAddr::new(local.ip(), 0);
            let bound = shared.table().bind(any, false)?;
            let datagrams = StackDatagrams { shared, bound };
            datagrams.connect(server)?;
            Ok(InsideDatagrams(datagrams))
        })
    }
}

pub(super) struct InsideDatagrams(StackDatagrams);

impl DnsUdpSocket for InsideDatagrams {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        loop {
            ready!(self.0.poll_readable(context));
            match self.0.try_receive(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received.map(|it| (it.length, it.from))),
            }
        }
    }

    fn poll_send_to(
        &self,
        _: &mut Context<'_>,
        datagram: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.try_send(datagram, Some(to), 0))
    }
}
