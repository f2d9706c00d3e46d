//! The supervisor's side of the tunnel process: starts it or takes over a running one, configures it and receives its
//! events.
//!
//! Configuration goes over the UAPI, as for any other client; everything else over the connection to
//! `/run/convoy/NAME.tunnel` ([`convoy_daemon::supervised`]).

mod event;
mod privileges;
mod process;
mod spawn;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use convoy_config::InterfaceName;
use convoy_daemon::{
    places,
    supervised::{
        outer::OuterTunnel,
        protocol::{DirectPaths, Key, ToSupervisor, ToTunnel},
    },
};
use convoy_process::{
    logging::{LogLevel, live::LevelError},
    message::{Connection, Lost},
};
use convoy_proto::config::{DeviceUpdate, PublicKey, Relay};
use convoy_report::Report;
use convoy_uapi::{client as uapi, listing, request};
use nix::{errno::Errno, unistd::Pid};
use tokio::{net::UnixStream, time::timeout};
use tracing::{debug, error, warn};

pub use convoy_uapi::listing::{RunningDevice, RunningPeer};
pub use event::TunnelEvent;
pub use process::Process;
pub use spawn::STEP;
pub(crate) use spawn::{Spawn, log};

use privileges::Lent;
use process::{ENDING_TIME, Starting};

/// Time limit for a tunnel's greeting: as long as it may take to drop a supervisor that does not read.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Time limit for a tunnel to read a message, so that one that hangs does not block its supervisor.
const READING_TIME: Duration = Duration::from_secs(3);

/// Time limit for a tunnel to end after a request.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Returns the process of the tunnel `name`, even if it hangs; `None` if there is none.
pub async fn process_of(name: &InterfaceName) -> Option<Pid> {
    let stream = UnixStream::connect(places::tunnel(name)).await.ok()?;
    Connection::new(stream).process()
}

/// Returns the state of the running tunnel that listens at `path`, whoever supervises it.
async fn running_device(path: &Path) -> anyhow::Result<RunningDevice> {
    let answer = uapi::exchange(path, b"get=1\n\n").await?;
    listing::parse(&answer).context("the tunnel's answer does not fit this version of convoy")
}

/// Returns the report of the running tunnel `name`.
pub async fn report(name: &InterfaceName) -> anyhow::Result<Report> {
    report_at(&places::uapi(name)).await
}

async fn report_at(path: &Path) -> anyhow::Result<Report> {
    let request = format!("{}\n\n", convoy_report::REQUEST);
    let answer = uapi::exchange(path, request.as_bytes()).await?;
    let json = convoy_report::json_of(&answer).context("the tunnel's answer is no report")?;
    serde_json::from_str(json).context("the tunnel's report does not fit this version of convoy")
}

/// Returns whether [`report`] has failed because the process has just ended.
pub fn has_ended(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    let ends = [
        BrokenPipe,
        ConnectionRefused,
        ConnectionReset,
        NotFound,
        UnexpectedEof,
    ];
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| ends.contains(&error.kind()))
}

/// Makes the running tunnel `name`, or its daemon, log up to `level` for `time`.
pub async fn set_log(name: &InterfaceName, level: LogLevel, time: Duration) -> anyhow::Result<()> {
    let request = convoy_uapi::log::request(level, time);
    let changed = uapi::exchange(&places::uapi(name), request.as_bytes()).await;
    changed
        .map(drop)
        .map_err(|error| match error.downcast_ref() {
            Some(uapi::Refused(Errno::ENODATA)) => LevelError::NoLog.into(),
            _ => error,
        })
}

/// A running tunnel that this process supervises. Dropping it leaves the tunnel running.
#[derive(Debug)]
pub struct TunnelProcess {
    /// Its UAPI socket.
    uapi: PathBuf,
    connection: Connection,
    process: Process,
    privileges: Lent,
    version: String,
    has_outer: bool,
    /// Whether the connection is no longer usable.
    is_lost: bool,
    /// Whether the last request got no answer.
    is_silent: bool,
}

/// A tunnel that another supervisor has started, with a duplicate of its TUN.
#[derive(Debug)]
pub struct Adopted {
    /// The process.
    pub process: TunnelProcess,
    /// Its TUN.
    pub tun: OwnedFd,
}

impl TunnelProcess {
    /// Starts a tunnel process and connects to it. May be cancelled.
    ///
    /// # Errors
    /// If it does not start. Then, and if it is cancelled, no process is left.
    pub(crate) async fn spawn(spawn: Spawn) -> anyhow::Result<Self> {
        let starting = spawn::spawn(&spawn).await?;
        let path = &spawn.sockets.supervisors;
        let greeted = timeout(GREETING_TIME, connect(path)).await;
        let greeted = greeted.context("the tunnel process does not greet")??;
        let greeted = greeted.with_context(|| format!("nobody listens on {}", path.display()))?;
        let process = match starting.and_then(Starting::started) {
            Some(process) => process,
            None => other(&greeted)?,
        };
        Ok(Self::new(spawn.sockets.uapi, greeted, process))
    }

    /// Takes over the running tunnel of `name`; `None` if there is none.
    ///
    /// Call it before anything else listens on [`places::tunnel`].
    pub async fn adopt(name: &InterfaceName) -> anyhow::Result<Option<Adopted>> {
        let greeted = timeout(GREETING_TIME, connect(&places::tunnel(name))).await;
        let greeted = greeted.with_context(|| {
            let path = places::tunnel(name);
            format!(
                "the tunnel behind {} does not answer: kill it",
                path.display()
            )
        })??;
        let Some(mut greeted) = greeted else {
            return Ok(None);
        };
        let process = other(&greeted)?;
        ensure!(
            process.pid() != Pid::this(),
            "this process listens for supervisors itself"
        );
        let tun = greeted.tun.take();
        let tun = tun.context("the running tunnel has not handed over its TUN")?;
        let process = Self::new(places::uapi(name), greeted, process);
        Ok(Some(Adopted { process, tun }))
    }

    fn new(uapi: PathBuf, greeted: Greeted, process: Process) -> Self {
        Self {
            uapi,
            connection: greeted.connection,
            process,
            privileges: Lent::over(greeted.line),
            version: greeted.version,
            has_outer: greeted.has_outer,
            is_lost: false,
            is_silent: false,
        }
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// The version of the program that it runs.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns whether it has an outer tunnel.
    pub(crate) fn has_outer(&self) -> bool {
        self.has_outer
    }

    /// Applies `update` as a whole or not at all. The tunnel does not ask about it.
    pub async fn set(&mut self, update: &DeviceUpdate) -> anyhow::Result<()> {
        if let Some(mark) = update.fwmark {
            self.allow(mark);
        }
        let request = request::of(update);
        let exchange = uapi::exchange(&self.uapi, request.as_bytes());
        let applied = tokio::select! {
            applied = exchange => applied.map(drop),
            () = self.process.ended() => bail!("the tunnel process has ended"),
        };
        self.is_silent = is_silence(&applied);
        applied.with_context(|| match update.listen_port {
            Some(port) if port != 0 => format!("cannot configure the tunnel, with port {port}"),
            _ => "cannot configure the tunnel".to_owned(),
        })
    }

    /// Allows the tunnel to use this mark, 0 for none. Before the first, it opens no sockets with a mark.
    pub fn allow(&mut self, mark: u32) {
        self.privileges.allow(mark);
    }

    /// Returns the tunnel's present state.
    pub async fn device(&mut self) -> anyhow::Result<RunningDevice> {
        let device = tokio::select! {
            device = running_device(&self.uapi) => device,
            () = self.process.ended() => bail!("the tunnel process has ended"),
        };
        self.is_silent = is_silence(&device);
        device
    }

    /// Returns the tunnel's report of its state and counters.
    pub async fn report(&mut self) -> anyhow::Result<Report> {
        let report = tokio::select! {
            report = report_at(&self.uapi) => report,
            () = self.process.ended() => bail!("the tunnel process has ended"),
        };
        self.is_silent = is_silence(&report);
        report
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> TunnelEvent {
        while !self.is_lost {
            match self.connection.next::<ToSupervisor>().await {
                Ok(message) => {
                    if let Some(event) = TunnelEvent::of(message) {
                        return event;
                    }
                }
                Err(Lost::Closed) => self.is_lost = true,
                Err(reason) => {
                    warn!("the connection to the tunnel process is lost: {reason}");
                    self.is_lost = true;
                }
            }
        }
        // Two processes must never read one TUN.
        let status = self.process.end_within(ENDING_TIME).await;
        match status {
            Some(status) => error!("the tunnel process has died ({status})"),
            None => error!("the tunnel process has died"),
        }
        TunnelEvent::Died
    }

    /// Kills the process, unless it has ended.
    pub async fn kill(&mut self) {
        self.process.end_within(Duration::ZERO).await;
    }

    /// Answers [`TunnelEvent::Asks`] about this mark.
    ///
    /// # Errors
    /// As for all that follow: the process is gone, which [`TunnelProcess::next`] reports, too.
    pub async fn answer(
        &mut self,
        id: u64,
        fwmark: Option<u32>,
        refused: Option<String>,
    ) -> anyhow::Result<()> {
        if let (Some(mark), None) = (fwmark, &refused) {
            self.allow(mark);
        }
        self.tell(&ToTunnel::Answers { id, refused }).await
    }

    /// Makes the tunnel report the handshakes and moves of `peers`, instead of the former ones.
    pub async fn follow(&mut self, peers: &[PublicKey]) -> anyhow::Result<()> {
        let peers = keys(peers);
        self.tell(&ToTunnel::Follow { peers }).await
    }

    /// Replaces the tunnel's TURN servers.
    pub async fn tell_relays(&mut self, relays: &[Relay]) -> anyhow::Result<()> {
        let relays = relays.to_vec();
        self.tell(&ToTunnel::Relays { relays }).await
    }

    /// Replaces the tunnel's direct paths.
    pub async fn tell_directs(&mut self, paths: &DirectPaths) -> anyhow::Result<()> {
        self.tell(&ToTunnel::Directs(paths.clone())).await
    }

    /// Replaces the outer tunnel.
    pub async fn tell_outer(&mut self, outer: &OuterTunnel) -> anyhow::Result<()> {
        self.tell(&ToTunnel::Outer(outer.clone())).await
    }

    /// Makes the tunnel begin handshakes with `peers` now.
    pub async fn handshake(&mut self, peers: &[PublicKey]) -> anyhow::Result<()> {
        let peers = keys(peers);
        self.tell(&ToTunnel::Handshake { peers }).await
    }

    /// Ends the tunnel: in an orderly way, or by force after 5 s, or after 1 s if it hangs. Does nothing if it has
    /// ended.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if self.tell(&ToTunnel::Stop).await.is_err() {
            // It has ended or is about to; otherwise it is killed below.
            debug!("The tunnel process could not be asked to stop");
        }
        let time = match self.is_silent {
            true => ENDING_TIME,
            false => STOP_TIME,
        };
        self.process.end_within(time).await;
        ensure!(self.process.has_ended(), "the tunnel process does not end");
        Ok(())
    }

    async fn tell(&mut self, message: &ToTunnel) -> anyhow::Result<()> {
        // What was queued goes with `next`.
        let told = timeout(READING_TIME, self.connection.send(message)).await;
        told.unwrap_or(Err(Lost::NotRead))
            .context("the tunnel process does not listen")
    }
}

/// A connection on which the tunnel has introduced itself.
#[derive(Debug)]
struct Greeted {
    connection: Connection,
    version: String,
    has_outer: bool,
    tun: Option<OwnedFd>,
    /// Connection over which the tunnel asks for privileged operations.
    line: Option<OwnedFd>,
}

/// The process that has greeted, which is not a child of this one.
fn other(greeted: &Greeted) -> anyhow::Result<Process> {
    let pid = greeted.connection.process();
    let pid = pid.context("the running tunnel is in another process namespace")?;
    Process::of_other(pid).context("cannot watch the running tunnel")
}

/// Connects to the tunnel that accepts supervisors at `path`; `None` if nothing listens there.
async fn connect(path: &Path) -> anyhow::Result<Option<Greeted>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot connect to {}", path.display()));
        }
    };
    greeted(Connection::new(stream)).await.map(Some)
}

async fn greeted(mut connection: Connection) -> anyhow::Result<Greeted> {
    let introduced = connection.send(&ToTunnel::hello()).await;
    introduced.context("the tunnel process does not listen")?;
    let (hello, descriptors) = connection
        .receive_with()
        .await
        .context("the tunnel process has not greeted")?;
    let mut descriptors = descriptors.into_iter();
    match hello {
        ToSupervisor::Hello {
            version, has_outer, ..
        } => Ok(Greeted {
            connection,
            version,
            has_outer,
            tun: descriptors.next(),
            line: descriptors.next(),
        }),
        _ => bail!("the tunnel process began without a greeting"),
    }
}

/// Returns whether a request got no answer in time.
fn is_silence<T>(outcome: &anyhow::Result<T>) -> bool {
    let error = outcome.as_ref().err();
    let error = error.and_then(|error| error.downcast_ref::<io::Error>());
    error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

fn keys(peers: &[PublicKey]) -> Vec<Key> {
    peers.iter().copied().map(Key).collect()
}

#[cfg(test)]
mod tests;
