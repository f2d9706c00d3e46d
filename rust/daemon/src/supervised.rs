//! The tunnel's side of the connection to its supervisor, `convoy up`: takeover and messages.
//!
//! ```text
//!  convoy up (root) ──connect──▶ /run/convoy/NAME.tunnel ──accept──▶ tunnel (own user)
//!                   ──▶ Hello
//!                   ◀── Hello, with the TUN and a socket for what needs privileges ([`privileges`])
//!                   ◀── Asks, Changed, Handshake, Moved, Ended
//!                   ──▶ Answers, Follow, Handshake, Stop
//! ```
//! The supervisor has made the listening socket and hands it over at the start ([`start`]). It keeps its place for as
//! long as its connection lasts. Any other process that connects and introduces itself waits for its end, then takes
//! over as the first one did (`newcomers`). Without a supervisor, or after an invalid message, the tunnel keeps running.

mod key;
mod newcomers;
pub mod outer;
pub mod privileges;
pub mod protocol;
mod questions;
pub mod start;

use std::{
    collections::VecDeque,
    future::pending,
    io,
    ops::ControlFlow,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use convoy_process::message::{Connection, Lost};
use convoy_proto::config::{Directs, PublicKey, Relay};
use convoy_tun::Device;
use convoy_tunnel::{Closed, Outcome, Outer, PeerEvent, Tunnel};
use nix::unistd::Pid;
use tokio::{
    net::UnixStream,
    sync::{Notify, mpsc},
    time::timeout,
};
use tracing::{debug, info, warn};

use newcomers::Newcomers;
use privileges::SupervisorsPrivileges;
use protocol::{Key, ToSupervisor, ToTunnel};
pub use questions::Consenting;
pub(crate) use questions::Questions;
use questions::{MAX_QUESTIONS, Question, Supervisor};
pub(crate) use start::Supervision;

/// Time limit for the last message.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Pause when the process is out of file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// The part of a tunnel that a supervisor follows and sets.
pub(crate) trait Handshakes {
    /// Reports the handshakes with these peers, instead of the former ones.
    async fn follow(&self, peers: &[PublicKey]) -> Result<(), Closed>;

    /// Begins a handshake with each of these peers.
    async fn handshake_now(&self, peers: &[PublicKey]) -> Result<(), Closed>;

    /// Sets the direct paths.
    async fn set_directs(&self, directs: Directs) -> Result<(), Closed>;

    /// Sets the TURN servers.
    async fn set_relays(&self, relays: Vec<Relay>) -> Result<(), Closed>;

    /// Sets the outer tunnel.
    async fn set_outer(&self, outer: Outer) -> Result<(), Closed>;

    /// Waits for the next report. Cancel-safe.
    async fn next_event(&self) -> PeerEvent;
}

impl Handshakes for Tunnel {
    async fn follow(&self, peers: &[PublicKey]) -> Result<(), Closed> {
        self.follow(peers).await
    }

    async fn handshake_now(&self, peers: &[PublicKey]) -> Result<(), Closed> {
        self.handshake_now(peers).await
    }

    async fn set_directs(&self, directs: Directs) -> Result<(), Closed> {
        self.set_directs(directs).await
    }

    async fn set_relays(&self, relays: Vec<Relay>) -> Result<(), Closed> {
        self.set_relays(relays).await
    }

    async fn set_outer(&self, outer: Outer) -> Result<(), Closed> {
        self.set_outer(outer).await
    }

    async fn next_event(&self) -> PeerEvent {
        self.next_handshake_event().await
    }
}

/// Serves supervisors, one at a time.
#[derive(Debug)]
pub(crate) struct Supervised<T> {
    listener: tokio::net::UnixListener,
    tunnel: T,
    /// The device, handed to each supervisor: the interface lasts while any process has it open.
    device: Device,
    privileges: SupervisorsPrivileges,
    questions: mpsc::Receiver<Question>,
    changed: Arc<Notify>,
    supervisor: Supervisor,
    connection: Option<Connection>,
    newcomers: Newcomers,
    /// The latest questions without an answer, oldest first: at most [`MAX_QUESTIONS`].
    waiting: VecDeque<(u64, Question)>,
    last_id: u64,
    /// As in [`Start`](start::Start), both.
    outlives_supervisor: bool,
    has_outer: bool,
}

/// An event that [`Supervised::serve`] reacts to.
enum Event {
    Connected(io::Result<UnixStream>),
    /// A newcomer has introduced itself, or was turned away.
    Newcomer,
    Received(ToTunnel),
    /// The supervisor has read what was queued.
    Flushed,
    Lost(Lost),
    Asked(Question),
    /// A UAPI client has changed the tunnel.
    Changed,
    Handshake(PeerEvent),
}

impl<T: Handshakes> Supervised<T> {
    /// Also returns the handle for questions of UAPI clients; call it within a tokio runtime.
    pub(crate) fn new(
        supervision: Supervision,
        tunnel: T,
        device: Device,
        privileges: SupervisorsPrivileges,
    ) -> io::Result<(Self, Questions)> {
        supervision.listener.set_nonblocking(true)?;
        let (questions, receiver, supervisor) = Questions::new();
        let ours = Self {
            listener: tokio::net::UnixListener::from_std(supervision.listener)?,
            tunnel,
            device,
            privileges,
            questions: receiver,
            changed: questions.changed(),
            supervisor,
            connection: None,
            newcomers: Newcomers::default(),
            waiting: VecDeque::new(),
            last_id: 0,
            outlives_supervisor: supervision.outlives_supervisor,
            has_outer: supervision.has_outer,
        };
        Ok((ours, questions))
    }

    /// Serves supervisors until one stops the tunnel, or disconnects from a tunnel that must end with it.
    pub(crate) async fn serve(&mut self) {
        loop {
            self.admit().await;
            let event = self.next_event().await;
            if self.handle(event).await.is_break() {
                return;
            }
        }
    }

    /// Announces an orderly end, so that the supervisor does not start another tunnel.
    pub(crate) async fn say_ended(&mut self, reason: &str) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let reason = reason.to_owned();
        if connection.queue(&ToSupervisor::Ended { reason }).is_ok() {
            // Nothing can be done about a supervisor that does not read.
            let _ = timeout(FAREWELL_TIME, connection.flush()).await;
        }
    }

    async fn next_event(&mut self) -> Event {
        let is_behind = self.connection.as_ref().is_some_and(Connection::is_behind);
        tokio::select! {
            accepted = self.listener.accept() => {
                Event::Connected(accepted.map(|(stream, _)| stream))
            }
            () = self.newcomers.next() => Event::Newcomer,
            event = from_supervisor(&mut self.connection) => event,
            Some(question) = self.questions.recv() => Event::Asked(question),
            // A supervisor that does not read gets the latest events later.
            () = self.changed.notified(), if !is_behind => Event::Changed,
            event = self.tunnel.next_event(), if !is_behind => Event::Handshake(event),
        }
    }

    async fn handle(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Connected(Ok(stream)) => self.newcomers.add(stream),
            Event::Connected(Err(error)) => {
                warn!("cannot accept a supervisor: {error}");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
            Event::Received(ToTunnel::Stop) => return ControlFlow::Break(()),
            Event::Received(message) => self.obey(message).await,
            Event::Newcomer | Event::Flushed => {}
            Event::Lost(_) if !self.outlives_supervisor => return ControlFlow::Break(()),
            Event::Lost(reason) => self.lose(&reason).await,
            Event::Asked(question) => self.ask(question).await,
            Event::Changed => self.tell(&ToSupervisor::Changed).await,
            Event::Handshake(event) => self.report(event).await,
        }
        ControlFlow::Continue(())
    }

    /// Greets the next supervisor, if there is none.
    async fn admit(&mut self) {
        while self.connection.is_none()
            && let Some(mut connection) = self.newcomers.take()
        {
            let supervisor = connection.process();
            let hello = ToSupervisor::Hello {
                version: protocol::BUILD.to_owned(),
                interface: self.device.name().unwrap_or_default(),
                has_outer: self.has_outer,
            };
            let line = match self.privileges.another() {
                Ok(line) => line,
                Err(error) => {
                    warn!("cannot greet a supervisor: {error}");
                    continue;
                }
            };
            let descriptors = [self.device.as_fd(), line.as_fd()];
            if let Err(reason) = connection.send_with(&hello, &descriptors).await {
                warn!("cannot greet a supervisor: {reason}");
                self.privileges.lost();
                continue;
            }
            self.supervisor.is(supervisor);
            self.connection = Some(connection);
            debug!(
                pid = supervisor.map(Pid::as_raw),
                "A supervisor has connected"
            );
            self.ask_again().await;
        }
    }

    async fn obey(&mut self, message: ToTunnel) {
        match message {
            ToTunnel::Answers { id, refused } => {
                if let Some(at) = self.waiting.iter().position(|(asked, _)| *asked == id)
                    && let Some((_, question)) = self.waiting.remove(at)
                {
                    // The client may have stopped waiting.
                    let _ = question.answer.try_send(refused);
                }
            }
            ToTunnel::Follow { peers } => self.follow(&peers).await,
            ToTunnel::Handshake { peers } => {
                // If it fails, the tunnel has ended, and this process is about to.
                let _ = self.tunnel.handshake_now(&public_keys(&peers)).await;
            }
            ToTunnel::Directs(directs) => {
                // As above.
                let _ = self.tunnel.set_directs(directs.into()).await;
            }
            ToTunnel::Relays { relays } => {
                // As above.
                let _ = self.tunnel.set_relays(relays).await;
            }
            ToTunnel::Outer(outer) => {
                // As above.
                let _ = self.tunnel.set_outer(outer.into()).await;
            }
            ToTunnel::Hello { .. } | ToTunnel::Stop | ToTunnel::Unknown => {
                debug!("Ignored a message of the supervisor");
            }
        }
    }

    async fn ask(&mut self, question: Question) {
        // Dropping the answer's channel permits the change.
        let needs_nobody = self.connection.is_none() && question.fwmark.is_none();
        if needs_nobody || question.until <= Instant::now() {
            return;
        }
        if self.waiting.len() == MAX_QUESTIONS {
            // Its client no longer waits: there are not that many clients.
            self.waiting.pop_front();
        }
        self.last_id += 1;
        let message = question.message(self.last_id);
        self.waiting.push_back((self.last_id, question));
        self.tell(&message).await;
    }

    /// Repeats unanswered questions to a new supervisor.
    async fn ask_again(&mut self) {
        let now = Instant::now();
        self.waiting.retain(|(_, question)| now < question.until);
        let asked = self.waiting.iter();
        let messages: Vec<_> = asked.map(|(id, question)| question.message(*id)).collect();
        for message in messages {
            self.tell(&message).await;
        }
    }

    async fn report(&mut self, event: PeerEvent) {
        let peer = Key(event.peer);
        if let Some(endpoint) = event.moved_to {
            self.tell(&ToSupervisor::Moved { peer, endpoint }).await;
        }
        if let Some(path) = event.path {
            self.tell(&ToSupervisor::Path {
                peer,
                remote: path.ok().map(|path| path.remote),
                kind: path.ok().map(|path| path.kind.name().to_owned()),
                why: path.err().map(|why| why.name().to_owned()),
            })
            .await;
        }
        if let Some(relay) = event.relay {
            self.tell(&ToSupervisor::Relay {
                peer,
                server: relay.map(|it| it.server),
                transport: relay.map(|it| it.transport),
            })
            .await;
        }
        if let Some(outcome) = event.handshake {
            self.tell(&ToSupervisor::Handshake {
                peer,
                answered: outcome == Outcome::Answered,
                given_up: outcome == Outcome::GivenUp,
            })
            .await;
        }
    }

    async fn tell(&mut self, message: &ToSupervisor) {
        if let Some(connection) = &mut self.connection
            && let Err(reason) = connection.queue(message)
        {
            self.lose(&reason).await;
        }
    }

    async fn lose(&mut self, reason: &Lost) {
        match reason {
            Lost::Closed => info!("the supervisor is gone; the tunnel continues without one"),
            _ => warn!(
                "the connection to the supervisor ends, the tunnel continues without one: {reason}"
            ),
        }
        self.forget_supervisor().await;
    }

    async fn forget_supervisor(&mut self) {
        self.connection = None;
        self.privileges.lost();
        self.supervisor.is_gone();
        // Permits other ports; another mark needs a supervisor, perhaps the next one.
        self.waiting
            .retain(|(_, question)| question.fwmark.is_some());
        self.follow(&[]).await;
    }

    async fn follow(&self, peers: &[Key]) {
        // As above.
        let _ = self.tunnel.follow(&public_keys(peers)).await;
    }
}

fn public_keys(peers: &[Key]) -> Vec<PublicKey> {
    peers.iter().map(|Key(peer)| *peer).collect()
}

/// Waits for the next event of the connection; for ever while there is none. Cancel-safe.
async fn from_supervisor(connection: &mut Option<Connection>) -> Event {
    let Some(connection) = connection else {
        return pending().await;
    };
    match connection.next_or_flushed().await {
        Ok(Some(message)) => Event::Received(message),
        Ok(None) => Event::Flushed,
        Err(reason) => Event::Lost(reason),
    }
}

#[cfg(test)]
mod tests;
