//! One client's datagrams to the target, and the answers.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{BATCH, Near};
use crate::{
    counters::Refusal,
    dial::{reason, resolve},
    expiry::{Expiry, RETRY},
    network::{Datagrams, any_of},
};

/// Datagrams that wait for the target's name to be resolved.
const MAX_EARLY: usize = 16;

/// A flow, as both of its sides see it.
pub(super) struct Flow {
    /// Towards the target, once that is known.
    socket: OnceLock<Datagrams>,
    early: mpsc::Sender<Vec<u8>>,
    expiry: Expiry,
}

impl Flow {
    pub(super) fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (early, receiver) = mpsc::channel(MAX_EARLY);
        let flow = Self {
            socket: OnceLock::new(),
            early,
            expiry: Expiry::new(),
        };
        (flow, receiver)
    }

    /// Sends a datagram to the target, now or as soon as that is known.
    pub(super) fn send(&self, datagram: &[u8], near: &Near) -> io::Result<()> {
        self.expiry.touch();
        match self.socket.get() {
            Some(socket) => self.send_now(socket, datagram, near),
            None => self
                .early
                .try_send(datagram.to_owned())
                .map_err(|_| ErrorKind::WouldBlock.into()),
        }
    }

    fn send_now(&self, socket: &Datagrams, datagram: &[u8], near: &Near) -> io::Result<()> {
        near.context
            .counters
            .moved
            .count_outbound(socket.try_send(datagram)?);
        Ok(())
    }
}

/// Runs a flow until it expires.
pub(super) async fn run(
    flow: Arc<Flow>,
    early: mpsc::Receiver<Vec<u8>>,
    near: Arc<Near>,
    client: SocketAddr,
) {
    match Box::pin(connect(&near)).await {
        Ok(socket) => {
            let _open = near.context.counters.open();
            let socket = flow.socket.get_or_init(|| socket);
            exchange(&flow, socket, early, &near, client).await;
        }
        Err(refusal) => {
            near.context.refuse(refusal, client);
            sleep(RETRY).await;
        }
    }
}

/// A socket that is connected to the first address of the target that has a route.
async fn connect(near: &Near) -> Result<Datagrams, Refusal> {
    let far = near.context.far.as_ref();
    let mut refusal = Refusal::UnknownName;
    for address in resolve(far, &near.target).await? {
        let attempt = async {
            let socket = far.datagrams(any_of(&address)).await?;
            socket.connect(address).await?;
            Ok(socket)
        };
        match attempt.await {
            Ok(socket) => return Ok(socket),
            Err(error) => refusal = reason(&error),
        }
    }
    Err(refusal)
}

async fn exchange(
    flow: &Flow,
    socket: &Datagrams,
    mut early: mpsc::Receiver<Vec<u8>>,
    near: &Near,
    client: SocketAddr,
) {
    loop {
        tokio::select! {
            // The flow holds a sender, so there is always another.
            Some(datagram) = early.recv() => {
                if flow.send_now(socket, &datagram, near).is_err() {
                    near.context.counters.drop_datagram();
                }
            }
            _ = socket.readable() => {
                for _ in 0..BATCH {
                    match near.answer(socket, client) {
                        Ok(()) => flow.expiry.answer(),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        // The target's host refuses the port: it may open later.
                        Err(_) => {}
                    }
                }
                tokio::task::yield_now().await;
            }
            () = sleep_until(flow.expiry.at()) => {
                if flow.expiry.at() <= Instant::now() {
                    return;
                }
            }
        }
    }
}
