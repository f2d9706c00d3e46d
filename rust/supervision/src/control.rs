//! The supervisor's socket, `/run/convoy/NAME.control`: a request is one line of JSON, as is the answer. After the
//! answer to [`Request::Subscribe`], each event is a line.

mod requests;
mod subscription;

use std::{
    io,
    os::unix::net::UnixStream as StdUnixStream,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use convoy_host::NetworkNamespace;
use convoy_process::{
    message::{self, Connection, Lost},
    socket::{self, SocketFile},
};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use thiserror::Error;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::AbortHandle,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

pub use requests::{Asked, Reply, Request};
use requests::{PATIENCE, answer};
use subscription::MAX_SUBSCRIBERS;

/// The most clients at once; further ones wait until they are accepted.
const MAX_CLIENTS: u32 = 8;

/// Time limit for a supervisor's status, for which it may wait for its tunnel.
const STATUS_TIME: Duration = Duration::from_secs(15);

/// Time limit for a killed supervisor to close its socket, and the pause between attempts.
const DYING_TIME: Duration = Duration::from_secs(1);
const DYING_PAUSE: Duration = Duration::from_millis(20);

/// The pause after a failed accept(2).
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The supervisor's end.
#[derive(Debug)]
pub struct Control {
    requests: mpsc::Receiver<Asked>,
    clients: Arc<Semaphore>,
    accepting: AbortHandle,
    file: SocketFile,
}

impl Control {
    /// Listens at `path`.
    pub fn listen(path: &Path) -> anyhow::Result<Self> {
        let (listener, file) = socket::bind(path)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener).context("cannot serve the socket")?;
        let clients = Arc::new(Semaphore::new(MAX_CLIENTS as usize));
        let (sender, requests) = mpsc::channel(MAX_CLIENTS as usize);
        let accepting = tokio::spawn(accept(listener, Arc::clone(&clients), sender));
        Ok(Self {
            requests,
            clients,
            accepting: accepting.abort_handle(),
            file,
        })
    }

    /// Waits for the next request. May be cancelled.
    pub async fn next(&mut self) -> Asked {
        match self.requests.recv().await {
            Some(asked) => asked,
            // The acceptor has ended, which only a panic can cause.
            None => std::future::pending().await,
        }
    }

    /// Waits for a client that wants the tunnel down, and refuses all other requests with `reason`. May be cancelled.
    pub(crate) async fn next_down(&mut self, reason: &str) -> oneshot::Sender<Reply> {
        loop {
            let Asked { request, reply, .. } = self.next().await;
            if request == Request::Down {
                return reply;
            }
            let reason = reason.to_owned();
            // The client may have left, here and below.
            let _ = reply.send(Reply::Failed { reason });
        }
    }

    /// Removes the socket, so that clients no longer find a supervisor here. Then answers the last clients and waits,
    /// for a limited time, until they have read the answers.
    pub async fn finish(mut self, clients: Vec<oneshot::Sender<Reply>>, reply: &Reply) {
        self.accepting.abort();
        self.file.remove();
        for client in clients {
            let _ = client.send(reply.clone());
        }
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        let all = self.clients.acquire_many(MAX_CLIENTS);
        if timeout(PATIENCE, all).await.is_err() {
            debug!("A client does not read its answer");
        }
    }
}

async fn accept(listener: UnixListener, clients: Arc<Semaphore>, requests: mpsc::Sender<Asked>) {
    let places = Arc::new(Semaphore::new(MAX_SUBSCRIBERS));
    // It fails only once the semaphore is closed, which never happens.
    while let Ok(permit) = Arc::clone(&clients).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let places = Arc::clone(&places);
                tokio::spawn(serve(stream, requests.clone(), permit, places));
            }
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one client while it holds its permit.
async fn serve(
    stream: UnixStream,
    requests: mpsc::Sender<Asked>,
    permit: OwnedSemaphorePermit,
    places: Arc<Semaphore>,
) {
    let mut client = Connection::new(stream);
    let reply = match timeout(PATIENCE, client.next()).await {
        Ok(Ok(Request::Subscribe)) => {
            return subscription::serve(client, requests, permit, places).await;
        }
        Ok(Ok(request)) => answer(request, None, &requests).await,
        Ok(Err(Lost::Invalid(error))) => Reply::Failed {
            reason: format!("this version of convoy does not know the request: {error}"),
        },
        Ok(Err(lost)) => Reply::Failed {
            reason: format!("cannot read the request: {lost}"),
        },
        Err(_) => Reply::Failed {
            reason: format!("no request within {} s", PATIENCE.as_secs()),
        },
    };
    if !matches!(timeout(PATIENCE, client.send(&reply)).await, Ok(Ok(()))) {
        debug!("A client did not read its answer");
    }
    drop(permit);
}

/// Reason why a supervisor did not answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nothing listens.
    #[error("no supervisor is running")]
    NoSupervisor,
    /// It is in another network namespace and has a different interface of that name.
    #[error(
        "this tunnel is in {0}, and there is none of its name here (fix: `{entry} convoy …` asks it)",
        entry = .0.entry()
    )]
    Elsewhere(NetworkNamespace),
    /// The socket is unusable.
    #[error("cannot ask the supervisor: {0}{fix}", fix = fix(.0))]
    Io(#[from] io::Error),
    /// It ended before it answered.
    #[error("the supervisor ended before it answered: see its log")]
    Ended,
    /// It did not answer in time.
    #[error("the supervisor does not answer: `kill -9` ends it, and `convoy up` starts another")]
    Silent,
    /// It is of another version.
    #[error("the supervisor's answer is not known to this version of convoy: {0}")]
    Answer(serde_json::Error),
}

/// Asks the supervisor that listens at `path` and waits as long as necessary, but at most `STATUS_TIME` for its status.
/// A dying supervisor may still accept connections for a moment.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, AskError> {
    let deadline = Instant::now() + DYING_TIME;
    let limit = matches!(request, Request::Status).then_some(STATUS_TIME);
    loop {
        match ask_once(path, request, limit) {
            Err(AskError::Ended) if Instant::now() < deadline => thread::sleep(DYING_PAUSE),
            outcome => return outcome,
        }
    }
}

fn ask_once(path: &Path, request: &Request, limit: Option<Duration>) -> Result<Reply, AskError> {
    let stream = match limit {
        Some(limit) => socket::connect_within(path, limit),
        None => StdUnixStream::connect(path),
    };
    let stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NoSupervisor,
        io::ErrorKind::WouldBlock => AskError::Silent,
        _ => AskError::Io(error),
    })?;
    let changes_nothing = matches!(request, Request::Status | Request::Subscribe);
    if let Some(namespace) = elsewhere(&stream).filter(|_| !changes_nothing) {
        return Err(AskError::Elsewhere(namespace));
    }
    stream.set_read_timeout(limit)?;
    message::send(&stream, request, &[])?;
    let (reply, _) = message::receive(&stream)?;
    Ok(reply)
}

/// Returns the network namespace of the process at the other end, if it differs from ours.
fn elsewhere(stream: &StdUnixStream) -> Option<NetworkNamespace> {
    let process = getsockopt(stream, PeerCredentials).ok()?.pid();
    let theirs = NetworkNamespace::of_process(process.cast_unsigned())?;
    let ours = NetworkNamespace::here().ok()?;
    (theirs != ours).then_some(theirs)
}

impl From<Lost> for AskError {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => Self::Ended,
            Lost::Invalid(error) => Self::Answer(error),
            Lost::Io(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
                _ => Self::Io(error),
            },
            Lost::TooLong(_) | Lost::NotRead => Self::Io(io::Error::other(lost)),
        }
    }
}

fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as root)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
