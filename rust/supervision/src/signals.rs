//! The signals that a supervisor handles.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEvent {
    /// SIGTERM or SIGINT.
    End(&'static str),
    /// SIGHUP.
    Reload,
    /// SIGUSR2.
    Replace,
}

/// Listens to all of them.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user_defined: Signal,
}

impl Signals {
    /// Listens to the signals from now on.
    ///
    /// # Errors
    /// If the runtime cannot.
    pub fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            user_defined: listen(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. May be cancelled.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.terminate.recv() => SignalEvent::End("SIGTERM"),
            _ = self.interrupt.recv() => SignalEvent::End("SIGINT"),
            _ = self.hang_up.recv() => SignalEvent::Reload,
            _ = self.user_defined.recv() => SignalEvent::Replace,
        }
    }
}
