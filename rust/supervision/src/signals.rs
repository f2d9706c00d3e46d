//! The signals that a supervisor handles.

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal as Number};
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
    /// Listens to the signals from now on, and to those that [`Held`] has kept back.
    ///
    /// # Errors
    /// If the runtime cannot.
    pub fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        let signals = Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            user_defined: listen(SignalKind::user_defined2())?,
        };
        held()
            .thread_unblock()
            .context("cannot listen to signals")?;
        Ok(signals)
    }

    /// Waits for a signal that wants the end; others wait for [`Signals::next`]. May be cancelled.
    pub async fn next_end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
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

/// Keeps back signals that would end a program before it listens to them, until [`Signals::new`], also in the next
/// program of this process.
#[derive(Debug)]
pub struct Held(());

impl Held {
    /// Keeps them back in this thread, which is to execute the next program.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> anyhow::Result<Self> {
        held().thread_block().context("cannot hold signals back")?;
        Ok(Self(()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // It can fail for unknown signals only.
        let _ = held().thread_unblock();
    }
}

fn held() -> SigSet {
    SigSet::from_iter([Number::SIGHUP, Number::SIGUSR2])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::raise;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_wants_no_end_waits_for_a_tunnel_that_is_up() {
        let next = Held::new().unwrap();
        for number in held().iter() {
            raise(number).unwrap();
        }
        let mut signals = Signals::new().unwrap();
        drop(next);
        let pause = Duration::from_millis(50);
        timeout(pause, signals.next_end()).await.unwrap_err();
        let mut heard = [signals.next().await, signals.next().await];
        heard.sort_by_key(|event| *event == SignalEvent::Replace);
        assert_eq!(heard, [SignalEvent::Reload, SignalEvent::Replace]);
        raise(Number::SIGTERM).unwrap();
        assert_eq!(signals.next_end().await, "SIGTERM");
    }
}
