//! Makes the socket: on a thread of its own if it must be marked, as that may wait for another process.

use std::{
    fmt,
    future::Future as _,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use tokio::sync::oneshot;

use crate::{
    error::Closed,
    socket::{self, Socket},
};

/// Does with a socket what must happen before it connects, such as setting its firewall mark. May wait.
#[derive(Clone)]
pub struct Prepare(Arc<Function>);

type Function = dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync;

impl Prepare {
    /// Wraps the function.
    pub fn new(
        function: impl Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }
}

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepare")
    }
}

/// A socket that is being made.
#[derive(Debug)]
pub(crate) struct Opening {
    server: SocketAddr,
    prepared: Prepared,
}

#[derive(Debug)]
enum Prepared {
    Waiting(oneshot::Receiver<io::Result<OwnedFd>>),
    Done(Option<io::Result<OwnedFd>>),
}

impl Opening {
    pub(crate) fn begin(server: SocketAddr, prepare: Option<Prepare>) -> io::Result<Self> {
        let socket = socket::open(server)?;
        let Some(Prepare(prepare)) = prepare else {
            let prepared = Prepared::Done(Some(Ok(socket)));
            return Ok(Self { server, prepared });
        };
        let (done, prepared) = oneshot::channel();
        thread::Builder::new()
            .name("relay-socket".to_owned())
            .spawn(move || {
                let prepared = prepare(socket.as_fd()).map(|()| socket);
                // If nobody waits any more, this closes it.
                let _ = done.send(prepared);
            })?;
        let prepared = Prepared::Waiting(prepared);
        Ok(Self { server, prepared })
    }

    /// Ready once [`Self::poll`] returns something.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Prepared::Waiting(socket) = &mut self.prepared {
            let prepared = ready!(Pin::new(socket).poll(cx));
            self.prepared = Prepared::Done(Some(prepared.unwrap_or_else(|_| Err(panicked()))));
        }
        Poll::Ready(())
    }

    /// Begins to connect the socket if it is ready for that.
    pub(crate) fn poll(&mut self) -> Option<Result<Socket, Closed>> {
        let prepared = match &mut self.prepared {
            Prepared::Done(prepared) => prepared.take()?,
            Prepared::Waiting(socket) => match socket.try_recv() {
                Ok(prepared) => prepared,
                Err(oneshot::error::TryRecvError::Empty) => return None,
                Err(oneshot::error::TryRecvError::Closed) => Err(panicked()),
            },
        };
        Some(match prepared {
            Ok(socket) => {
                Socket::connect(socket, self.server).map_err(|error| Closed::connecting(&error))
            }
            Err(error) => Err(Closed::Socket(error.to_string())),
        })
    }
}

fn panicked() -> io::Error {
    io::Error::other("its thread has panicked")
}
