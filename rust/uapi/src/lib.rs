//! The WireGuard cross-platform interface (UAPI): how `wg` talks to the daemon.
//!
//! The daemon calls [`Server`] with its tunnel as [`Control`]; a supervisor finds it by [`socket`], writes a [`request`],
//! sends it by [`client`] and reads the [`listing`]. It never touches an interface, a route or a file but the
//! socket, keeps no key longer than a request, and knows no configuration file and no command line.
//!
//! A client sends any number of requests, one after another, each ended by a blank line. Each gets
//! an answer that ends with `errno=N` and a blank line:
//!
//! | request | answer |
//! |---|---|
//! | `get=1` | the device and its peers, one `key=value` per line |
//! | `set=1`, then `key=value` lines | nothing; applied whole, or not at all |
//! | `set=convoy_log`, then `level=…` and `seconds=…` | nothing; another log level for a time ([`log`]) |
//! | `get=convoy_stats` | `convoy_stats=` and one line of JSON ([`convoy_report`]); its only keys are public |
//!
//! Each client has a thread of its own, so that one that never finishes its request delays nobody
//! else. Time, bytes and the number of clients are bounded: when one client too many connects, the
//! one that has been silent longest is disconnected.

pub mod client;
mod clients;
mod lines;
pub mod listing;
pub mod log;
mod parse;
pub mod request;
pub mod socket;
mod values;
mod write;

use std::{
    convert::Infallible,
    io,
    ops::ControlFlow,
    os::unix::net::UnixListener,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use convoy_process::return_freed_memory;
use convoy_proto::{
    config::{DeviceUpdate, Snapshot},
    leave_no_trace,
};
use convoy_report::Report;
use convoy_tunnel::{ApplyError, Closed, Tunnel};
use nix::{errno::Errno, unistd::Pid};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{Span, debug, error, warn};
use zeroize::Zeroizing;

use clients::{Client, Clients};
use lines::{Limits, Lines, ReadError};
use parse::{ParseError, SetParser};

/// Clients served at the same time.
pub const MAX_CLIENTS: usize = 32;

/// 130,000 allowed IPs take 8 MB.
const LIMITS: Limits = Limits {
    time: Duration::from_secs(60),
    bytes: 64 << 20,
};

/// After a request or an answer of at least this many bytes, freed memory goes back to the kernel. What a listing is made
/// of takes twice as much as its text, and each client may have one.
const LARGE: usize = 64 << 10;

/// Pause when the process is out of file descriptors or threads.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Time to wait for a disconnected client's slot before disconnecting another client.
const DISMISSAL_TIME: Duration = Duration::from_millis(100);

/// A running tunnel, as the clients control it.
pub trait Control: Send + Sync + 'static {
    /// Returns whether somebody must consent to `update`, a request of the process `client`. Such changes take effect
    /// in the order of the consents.
    fn needs_consent(&self, _update: &DeviceUpdate, _client: Option<Pid>) -> bool {
        false
    }

    /// Asks whoever must consent to `update`, a request of the process `client` (`None` if it cannot be seen
    /// from here). Called before [`Control::apply`]; blocks.
    fn permit(&self, _update: &DeviceUpdate, _client: Option<Pid>) -> Result<(), Refused> {
        Ok(())
    }

    /// Applies `update`, whole or not at all.
    fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError>;

    /// Notes that a request of the process `client` was applied.
    fn changed_by(&self, _client: Option<Pid>) {}

    /// The device and its peers now.
    fn snapshot(&self) -> Result<Snapshot, Closed>;
}

impl Control for Tunnel {
    fn apply(&self, update: DeviceUpdate) -> Result<(), ApplyError> {
        self.apply(update)
    }

    fn snapshot(&self) -> Result<Snapshot, Closed> {
        self.snapshot()
    }
}

/// Answers the clients of one socket.
#[derive(Debug)]
pub struct Server<C> {
    listener: tokio::net::UnixListener,
    service: Arc<Service<C>>,
}

/// Shared by all clients' threads.
#[derive(Debug)]
struct Service<C> {
    reporter: Arc<Reporter<C>>,
    limits: Limits,
    /// Held from a consent until its change has taken effect.
    consent: Mutex<()>,
}

/// Makes the report of `convoy stats`.
#[derive(Debug)]
pub struct Reporter<C> {
    interface: String,
    /// Index of the interface while it is in this network namespace.
    index: Option<u32>,
    control: C,
    figures: Figures,
}

/// Functions that make a report of a snapshot and of what the kernel counts.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Reports an interface's snapshot.
    pub report: fn(&str, &Snapshot) -> Report,
    /// Counts what the kernel has dropped from the queue of the interface with this index; `None` if it cannot tell.
    pub queue_drops: fn(u32) -> Option<u64>,
}

impl<C: Control> Reporter<C> {
    /// Reports on the tunnel of `interface`, whose index is `None` if it is not in this network namespace.
    pub fn new(interface: String, index: Option<u32>, control: C, figures: Figures) -> Self {
        Self {
            interface,
            index,
            control,
            figures,
        }
    }

    /// Returns the name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The figures now. Blocks.
    pub fn report(&self) -> Result<Report, Closed> {
        let mut snapshot = self.control.snapshot()?;
        if let Some(dropped) = self.index.and_then(self.figures.queue_drops) {
            let events = &mut snapshot.counters.events;
            events.push(("tun_queue_drops", dropped));
        }
        Ok((self.figures.report)(&self.interface, &snapshot))
    }
}

/// A change that somebody who must consent refuses; contains the reason.
#[derive(Debug, thiserror::Error)]
#[error("the supervisor refuses it: {0}")]
pub struct Refused(pub String);

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the request is not followed by a blank line")]
    NotBlank,
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Log(#[from] log::LogError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl<C: Control> Server<C> {
    /// Creates a server for the tunnel of `reporter`; call it within a tokio runtime.
    pub fn new(listener: UnixListener, reporter: Arc<Reporter<C>>) -> io::Result<Self> {
        Self::with_limits(listener, reporter, LIMITS)
    }

    fn with_limits(
        listener: UnixListener,
        reporter: Arc<Reporter<C>>,
        limits: Limits,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let consent = Mutex::default();
        let service = Arc::new(Service {
            reporter,
            limits,
            consent,
        });
        Ok(Self { listener, service })
    }

    /// Accepts clients forever.
    pub async fn serve(self) -> Infallible {
        let slots = Arc::new(Semaphore::new(MAX_CLIENTS));
        let clients = Arc::new(Clients::default());
        loop {
            let accepted = self.listener.accept().await;
            let slot = free_slot(&slots, &clients).await;
            let (service, clients) = (Arc::clone(&self.service), Arc::clone(&clients));
            let started = accepted
                .and_then(|(stream, _)| stream.into_std())
                .and_then(|stream| clients.admit(stream, service.limits.time))
                .and_then(|client| {
                    let span = Span::current();
                    let serve = move || {
                        span.in_scope(|| service.converse(&client));
                        drop((client, slot));
                    };
                    thread::Builder::new().name("uapi".into()).spawn(serve)
                });
            if let Err(error) = started {
                warn!("UAPI: cannot serve a client: {error}");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Waits for a slot; if all are taken, silent clients lose theirs.
async fn free_slot(slots: &Arc<Semaphore>, clients: &Clients) -> OwnedSemaphorePermit {
    loop {
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            return slot;
        }
        if let Some(silent) = clients.dismiss_one() {
            debug!("UAPI: {MAX_CLIENTS} clients; disconnected one that was silent for {silent:?}");
        }
        let freed = Arc::clone(slots).acquire_owned();
        if let Ok(slot) = tokio::time::timeout(DISMISSAL_TIME, freed).await {
            // INVARIANT: the semaphore is never closed.
            return slot.expect("the semaphore is open");
        }
    }
}

impl<C: Control> Service<C> {
    /// Answers one client's requests until it disconnects or sends something unintelligible.
    fn converse(&self, client: &Client) {
        let mut lines = Lines::new(client, self.limits);
        while leave_no_trace(|| self.answer_one(client, &mut lines)).is_continue() {}
    }

    fn answer_one(&self, client: &Client, lines: &mut Lines<'_>) -> ControlFlow<()> {
        lines.begin_request();
        let outcome = match lines.next_line() {
            Ok(b"get=1") => self.listing(lines),
            Ok(b"set=1") => self.set(client, lines),
            Ok(line) if line == convoy_report::REQUEST.as_bytes() => self.stats(lines),
            Ok(line) if line == log::REQUEST.as_bytes() => set_log(lines),
            Ok(_) => {
                error!("UAPI: a client requested an unknown operation");
                return ControlFlow::Break(());
            }
            Err(ReadError::Ended) => return ControlFlow::Break(()),
            Err(error) => Err(error.into()),
        };
        if let Err(refusal) = &outcome {
            error!("UAPI: request refused: {refusal}");
        }
        let lost_track = matches!(outcome, Err(Refusal::Read(_)));
        let text_bytes = outcome.as_ref().map_or(0, |text| text.len());
        lines.end_request();
        let is_lost = answer(client, outcome).is_err() || lost_track;
        if text_bytes.max(lines.request_bytes()) >= LARGE {
            return_freed_memory();
        }
        match is_lost {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn listing(&self, lines: &mut Lines<'_>) -> Result<Zeroizing<String>, Refusal> {
        blank_line(lines)?;
        Ok(write::listing(&self.reporter.control.snapshot()?))
    }

    fn stats(&self, lines: &mut Lines<'_>) -> Result<Zeroizing<String>, Refusal> {
        blank_line(lines)?;
        Ok(Zeroizing::new(convoy_report::answer(
            &self.reporter.report()?,
        )))
    }

    fn set(&self, client: &Client, lines: &mut Lines<'_>) -> Result<Zeroizing<String>, Refusal> {
        let mut parser = SetParser::new();
        let mut wrong = None;
        loop {
            // The reference's line reader strips one carriage return as well.
            let line = lines.next_line()?;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                break;
            }
            // Skip the rest of an invalid request to find where the next one begins.
            if wrong.is_none() {
                wrong = parser.line(line).err();
            }
        }
        if let Some(error) = wrong {
            return Err(error.into());
        }
        let update = parser.finish();
        debug!(peers = update.peers.len(), "UAPI: set");
        let (control, process) = (&self.reporter.control, client.process());
        let needs_consent = control.needs_consent(&update, process);
        let consent = || self.consent.lock().unwrap_or_else(PoisonError::into_inner);
        let _one_at_a_time = needs_consent.then(consent);
        control.permit(&update, process)?;
        control.apply(update)?;
        control.changed_by(process);
        Ok(Zeroizing::default())
    }
}

fn set_log(lines: &mut Lines<'_>) -> Result<Zeroizing<String>, Refusal> {
    let mut wanted = log::Wanted::default();
    loop {
        match lines.next_line()? {
            b"" => break,
            line => wanted.take(line),
        }
    }
    wanted.apply()?;
    Ok(Zeroizing::default())
}

/// Reads up to the blank line that ends a `get`; other lines before it are an error.
fn blank_line(lines: &mut Lines<'_>) -> Result<(), Refusal> {
    let mut blank = true;
    while !lines.next_line()?.is_empty() {
        blank = false;
    }
    blank.then_some(()).ok_or(Refusal::NotBlank)
}

fn answer(client: &Client, outcome: Result<Zeroizing<String>, Refusal>) -> io::Result<()> {
    let errno = match outcome {
        Ok(text) => {
            client.write_all(text.as_bytes())?;
            0
        }
        Err(refusal) => -(refusal.errno() as i32),
    };
    client.write_all(format!("errno={errno}\n\n").as_bytes())
}

impl Refusal {
    fn errno(&self) -> Errno {
        match self {
            Self::Read(ReadError::Ended) => Errno::EPROTO,
            Self::Read(_) => Errno::EIO,
            Self::NotBlank => Errno::EINVAL,
            Self::Parse(error) => error.errno(),
            Self::Refused(_) => Errno::EPERM,
            Self::Log(error) => error.errno(),
            Self::Apply(ApplyError::Sockets { source, .. } | ApplyError::Fwmark { source, .. })
                if source.kind() == io::ErrorKind::TimedOut =>
            {
                Errno::ETIMEDOUT
            }
            Self::Apply(ApplyError::Sockets { source, .. }) => source
                .raw_os_error()
                .map_or(Errno::EADDRINUSE, Errno::from_raw),
            Self::Apply(ApplyError::Fwmark { source, .. }) => {
                source.raw_os_error().map_or(Errno::EPERM, Errno::from_raw)
            }
            Self::Apply(ApplyError::PeerOfOuter) => Errno::EEXIST,
            Self::Apply(ApplyError::Closed) | Self::Closed(Closed) => Errno::ENODEV,
        }
    }
}

/// Parses the lines of a `set` request; `None` if one of them is invalid.
///
/// Exposes the parser to benches.
#[must_use]
#[doc(hidden)]
pub fn parse_set(lines: &[u8]) -> Option<DeviceUpdate> {
    let mut parser = SetParser::new();
    for line in lines.split(|byte| *byte == b'\n') {
        parser.line(line).ok()?;
    }
    Some(parser.finish())
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
