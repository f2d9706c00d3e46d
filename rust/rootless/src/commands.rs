//! The commands of `convoy exec` inside a tunnel.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use convoy_keeper::tunnel::Process;
use convoy_process::message::Connection;
use tokio::{task::JoinSet, time::sleep};

use super::{engine::Engine, meeting};

/// The most commands in one tunnel.
const MAX_COMMANDS: usize = 64;

/// How long what the last command has sent may take to arrive after its end; and how often to look.
pub(super) const DELIVERY_TIME: Duration = Duration::from_secs(10);
const DELIVERY_PAUSE: Duration = Duration::from_millis(50);

/// The process at the other end.
pub(crate) fn process_of(command: &Connection) -> anyhow::Result<Arc<Process>> {
    let process = Process::of_other(command.process().context("no process asks")?);
    process.map(Arc::new).context("cannot watch the command")
}

/// The commands that run.
#[derive(Debug)]
pub(super) struct Commands {
    running: JoinSet<()>,
    /// When the latest one ended.
    ended: Instant,
}

impl Commands {
    pub(super) fn new() -> Self {
        Self {
            running: JoinSet::new(),
            ended: Instant::now(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// Hands a command the namespaces, and waits for its end from now on.
    pub(super) async fn admit(
        &mut self,
        command: &mut Connection,
        process: Arc<Process>,
        engine: &Engine,
    ) -> anyhow::Result<()> {
        let spaces = match engine.spaces() {
            _ if self.running.len() >= MAX_COMMANDS => {
                Err(format!("{MAX_COMMANDS} commands run already"))
            }
            Some(spaces) => Ok(spaces),
            None => Err(format!(
                "commands need the engine `namespace`; this tunnel has `{}`",
                engine.name()
            )),
        };
        meeting::answer(command, &spaces).await?;
        spaces.map_err(anyhow::Error::msg)?;
        self.running.spawn(async move { process.ended().await });
        Ok(())
    }

    /// Waits for the end of one, or, if there is none and the tunnel is not to last, until what the last one sent has
    /// been delivered, as it would be outside. Returns whether that is so. May be cancelled.
    pub(super) async fn next_end(&mut self, engine: &Engine, lasts: bool) -> bool {
        if self.running.join_next().await.is_some() {
            self.ended = Instant::now();
            return false;
        }
        if lasts {
            pending::<()>().await;
        }
        // Datagrams, which nobody acknowledges, take less.
        sleep(DELIVERY_PAUSE).await;
        while self.ended.elapsed() < DELIVERY_TIME && engine.is_sending() {
            sleep(DELIVERY_PAUSE).await;
        }
        true
    }
}
