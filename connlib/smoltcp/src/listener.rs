//! Accepts connections of a stack.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{listening::Listening, shared::Shared, stream::FlowStream};
use convoy_network::{Accept, Stream};

/// The listener that a user holds.
#[derive(Debug)]
pub(super) struct StackListener {
    pub(super) shared: Arc<Shared>,
    pub(super) listening: Arc<Listening>,
}

impl Accept for StackListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.listening.at)
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>> {
        let flow = ready!(self.listening.poll_accept(context))?;
        let remote = flow.tuple.remote;
        let stream = FlowStream::new(Arc::clone(&self.shared), flow);
        Poll::Ready(Ok((Stream::Other(Box::new(stream)), remote)))
    }
}

impl Drop for StackListener {
    fn drop(&mut self) {
        self.shared.table().unlisten(self.listening.at);
        self.shared.abandon(self.listening.close());
    }
}
