//! One client's datagrams to the target, and the answers.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{BATCH, Near};
use crate::{
    counters::Refusal,
    dial::{reason, resolve},
    network::Datagrams,
};

/// A flow ends after this time without datagrams, as long as the target has answered nothing.
const UNANSWERED: Duration = Duration::from_secs(30);
/// The same once it has.
const ANSWERED: Duration = Duration::from_secs(180);
/// Datagrams that wait for the target's name to be resolved.
const MAX_EARLY: usize = 16;
/// How long a client waits after a failure before its next datagram is another attempt.
const RETRY: Duration = Duration::from_secs(1);

/// A flow, as both of its sides see it.
pub(super) struct Flow {
    /// Towards the target, once that is known.
    socket: OnceLock<Datagrams>,
    early: mpsc::Sender<Vec<u8>>,
    begun: Instant,
    /// Milliseconds from the beginning to the last datagram.
    last: AtomicU64,
    is_answered: AtomicBool,
}

impl Flow {
    pub(super) fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (early, receiver) = mpsc::channel(MAX_EARLY);
        let flow = Self {
            socket: OnceLock::new(),
            early,
            begun: Instant::now(),
            last: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
        };
        (flow, receiver)
    }

    /// Sends a datagram to the target, now or as soon as that is known.
    pub(super) fn send(&self, datagram: &[u8], near: &Near) -> io::Result<()> {
        self.touch();
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

    fn touch(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        self.last.store(now, Ordering::Relaxed);
    }

    fn expires(&self) -> Instant {
        let idle = match self.is_answered.load(Ordering::Relaxed) {
            true => ANSWERED,
            false => UNANSWERED,
        };
        self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed)) + idle
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

/// Any address of the same family, and any port.
pub(crate) fn any_of(address: &SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
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
                        Ok(()) => {
                            flow.is_answered.store(true, Ordering::Relaxed);
                            flow.touch();
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        // The target's host refuses the port: it may open later.
                        Err(_) => {}
                    }
                }
                tokio::task::yield_now().await;
            }
            () = sleep_until(flow.expires()) => {
                if flow.expires() <= Instant::now() {
                    return;
                }
            }
        }
    }
}
