//! The namespace engine: its sockets come from the process that holds the namespace.

mod stock;

use std::{
    io,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::Command,
    sync::{Arc, Weak},
    thread,
};

use anyhow::{Context, anyhow};
use convoy_gateway::Inlet;
use convoy_keeper::tunnel::Process;
use convoy_namespace::{self, Namespace, NamespaceError, Settings, Spaces};
use convoy_network::{Answer, Family, Kernel, NameServers, OpenSockets, SocketKind, WithNames};
use convoy_process::PROGRAM;
use tokio::sync::{mpsc, oneshot};

use crate::args::NAMESPACE_HOLDER;
use stock::{READY, Stock};

/// Requests for sockets that wait for the holder; further ones wait to be made.
const MAX_REQUESTS: usize = 64;

/// This program as the holder of namespaces.
pub fn holder() -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0("convoy").arg(NAMESPACE_HOLDER).env_clear();
    command
}

/// A namespace whose holder is watched.
#[derive(Debug)]
pub(crate) struct Inside {
    namespace: Arc<Namespace>,
    holder: Process,
    sockets: Sockets,
    inlet: Option<convoy_namespace::Inlet>,
    mtu: u16,
}

impl Inside {
    pub(super) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let mut namespace = Namespace::start(holder(), settings)?;
        let inlet = namespace.take_inlet();
        let namespace = Arc::new(namespace);
        let holder = Process::of_other(namespace.holder());
        let holder = holder.context("cannot watch the process that holds the namespace")?;
        let sockets = Sockets::of(&namespace)?;
        Ok(Self {
            namespace,
            holder,
            sockets,
            inlet,
            mtu: settings.mtu,
        })
    }

    pub(super) fn tun(&self) -> io::Result<OwnedFd> {
        self.namespace.tun().try_clone_to_owned()
    }

    /// Opens the network inside: of no use without `self`, but it need not be dropped before.
    pub(super) fn network(&self, names: &NameServers) -> io::Result<Kernel<WithNames>> {
        let sockets = Arc::new(self.sockets.clone());
        WithNames::new(sockets, names).map(Kernel)
    }

    /// Returns where flows of peers come out, once, if the settings ask for that.
    pub(super) fn take_inlet(&mut self) -> io::Result<Option<Inlet>> {
        let taken = self.inlet.take();
        let sockets = Arc::new(self.sockets.clone());
        let inlet = taken.map(|inlet| Inlet::of_namespace(inlet, sockets, self.mtu));
        inlet.transpose()
    }

    pub(super) fn spaces(&self) -> &Spaces {
        self.namespace.spaces()
    }

    pub(super) fn is_sending(&self) -> bool {
        self.namespace.is_sending()
    }

    pub(super) fn warnings(&self) -> &[String] {
        self.namespace.warnings()
    }

    pub(super) async fn ended(&self) -> anyhow::Error {
        self.holder.ended().await;
        anyhow!("the process that holds the tunnel's namespace was killed")
    }
}

/// Asks the holder for sockets, on a separate thread, as the holder may be slow. Some are made ahead, as asking
/// takes longer than the rest of a connection's set-up.
#[derive(Clone, Debug)]
pub(super) struct Sockets {
    requests: mpsc::Sender<Request>,
    stock: Arc<Stock>,
}

#[derive(Debug)]
struct Request {
    kind: SocketKind,
    family: Family,
    /// `None` if the stock alone is to be filled.
    answer: Option<oneshot::Sender<io::Result<OwnedFd>>>,
}

impl Sockets {
    fn of(namespace: &Arc<Namespace>) -> anyhow::Result<Self> {
        let namespace = Arc::downgrade(namespace);
        let (requests, received) = mpsc::channel(MAX_REQUESTS);
        let stock = Arc::new(Stock::default());
        let filled = Arc::clone(&stock);
        thread::Builder::new()
            .name("sockets".to_owned())
            .spawn(move || serve(&namespace, &filled, received))
            .context("cannot start a thread")?;
        Ok(Self { requests, stock })
    }

    /// Takes a socket that was made ahead; has more made if few are left.
    fn take(&self, kind: SocketKind, family: Family) -> Option<OwnedFd> {
        let (socket, is_low) = self.stock.take(kind, family)?;
        if is_low {
            let request = Request {
                kind,
                family,
                answer: None,
            };
            // If too many wait already, the next one asks.
            let _ = self.requests.try_send(request);
        }
        Some(socket)
    }
}

impl OpenSockets for Sockets {
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd> {
        Box::pin(async move {
            if let Some(socket) = self.take(kind, family) {
                return Ok(socket);
            }
            let (answer, answered) = oneshot::channel();
            let request = Request {
                kind,
                family,
                answer: Some(answer),
            };
            self.requests.send(request).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        })
    }

    /// See [`WithNames`].
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// Answers requests until nobody can make any more.
fn serve(namespace: &Weak<Namespace>, stock: &Stock, mut requests: mpsc::Receiver<Request>) {
    while let Some(Request {
        kind,
        family,
        answer,
    }) = requests.blocking_recv()
    {
        let asked = usize::from(answer.is_some());
        let missing = READY.saturating_sub(stock.len(kind, family));
        let made = match namespace.upgrade() {
            // There may be descriptors for one, and not for all.
            Some(namespace) => {
                make(&namespace, kind, family, asked + missing).or_else(|error| match asked {
                    0 => Err(error),
                    _ => make(&namespace, kind, family, asked),
                })
            }
            None => Err(gone()),
        };
        let (first, more) = match (made, answer.is_some()) {
            (Ok(mut sockets), true) => (sockets.pop().ok_or_else(gone), sockets),
            (Ok(sockets), false) => (Err(gone()), sockets),
            (Err(error), _) => (Err(error), Vec::new()),
        };
        stock.add(kind, family, more);
        if let Some(answer) = answer {
            // The requester may have left.
            drop(answer.send(first));
        }
    }
}

fn make(
    namespace: &Namespace,
    kind: SocketKind,
    family: Family,
    count: usize,
) -> io::Result<Vec<OwnedFd>> {
    let is_ipv6 = family == Family::V6;
    let made = match kind {
        SocketKind::Tcp => namespace.tcp(is_ipv6, count),
        SocketKind::Udp => namespace.udp(is_ipv6, count),
    };
    made.map_err(|error| match error {
        NamespaceError::Socket(error) => error,
        _ => gone(),
    })
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the tunnel has ended")
}
