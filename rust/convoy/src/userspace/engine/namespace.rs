//! The namespace engine: its sockets come from the process that holds the namespace.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Weak},
    thread,
};

use anyhow::{Context, anyhow};
use convoy_netstack::{
    namespace::{self, Namespace, NamespaceError, Settings, Spaces},
    nat::Inlet,
    network::{Answer, Family, Kernel, NameServers, OpenSockets, SocketKind, WithNames},
};
use tokio::sync::{mpsc, oneshot};

use crate::client::tunnel::Process;

/// Requests for sockets that wait for the holder; further ones wait to be made.
const MAX_REQUESTS: usize = 64;

/// A namespace whose holder is watched.
#[derive(Debug)]
pub(in crate::userspace) struct Inside {
    namespace: Arc<Namespace>,
    holder: Process,
    sockets: Sockets,
    inlet: Option<namespace::Inlet>,
    mtu: u16,
}

impl Inside {
    pub(super) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let mut namespace = Namespace::start(super::holder(), settings)?;
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

    /// Of no use without `self`, but needs not be dropped before.
    pub(super) fn network(&self, names: &NameServers) -> io::Result<Kernel<WithNames>> {
        let sockets = Arc::new(self.sockets.clone());
        WithNames::new(sockets, names).map(Kernel)
    }

    /// Where flows of peers come out, once, if the settings ask for that.
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

/// Has the holder make sockets, on a thread of its own: the holder may take its time.
#[derive(Clone, Debug)]
pub(super) struct Sockets(mpsc::Sender<Request>);

#[derive(Debug)]
struct Request {
    kind: SocketKind,
    family: Family,
    answer: oneshot::Sender<io::Result<OwnedFd>>,
}

impl Sockets {
    fn of(namespace: &Arc<Namespace>) -> anyhow::Result<Self> {
        let namespace = Arc::downgrade(namespace);
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        thread::Builder::new()
            .name("sockets".to_owned())
            .spawn(move || serve(&namespace, requests))
            .context("cannot start a thread")?;
        Ok(Self(sender))
    }
}

impl OpenSockets for Sockets {
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let request = Request {
                kind,
                family,
                answer,
            };
            self.0.send(request).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        })
    }

    /// See [`WithNames`].
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// Answers requests until nobody can make any more.
fn serve(namespace: &Weak<Namespace>, mut requests: mpsc::Receiver<Request>) {
    while let Some(request) = requests.blocking_recv() {
        let made = match namespace.upgrade() {
            Some(namespace) => make(&namespace, request.kind, request.family),
            None => Err(gone()),
        };
        // Who has asked may have left.
        drop(request.answer.send(made));
    }
}

fn make(namespace: &Namespace, kind: SocketKind, family: Family) -> io::Result<OwnedFd> {
    let is_ipv6 = family == Family::V6;
    let made = match kind {
        SocketKind::Tcp => namespace.tcp(is_ipv6, 1),
        SocketKind::Udp => namespace.udp(is_ipv6, 1),
    };
    match made {
        Ok(mut sockets) => sockets.pop().ok_or_else(gone),
        Err(NamespaceError::Socket(error)) => Err(error),
        Err(_) => Err(gone()),
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the tunnel has ended")
}
