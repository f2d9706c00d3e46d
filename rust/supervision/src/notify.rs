//! Notifications for systemd, or another service manager with its protocol (sd_notify(3)).

use std::{env, time::Duration};

use sd_notify::NotifyState;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

/// Returns whether a service manager waits for notifications.
pub fn is_requested() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

/// Reports that the tunnel is up.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the configuration is being read again; [`ready`] ends this.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => warn!("cannot read the monotonic clock: {error}"),
    }
}

/// Sends a line for `systemctl status`.
pub fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Reports that the tunnel is being taken down.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot notify the service manager: {error}");
    }
}

/// The service manager's watchdog, if it has one.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Half of the time after which it acts, as sd_watchdog_enabled(3) recommends.
    pause: Option<Duration>,
    due: Instant,
}

impl Watchdog {
    /// Reads the watchdog's settings from the environment.
    pub(crate) fn new() -> Self {
        Self {
            pause: sd_notify::watchdog_enabled().map(|time| time / 2),
            due: Instant::now(),
        }
    }

    /// Waits until the watchdog must be notified; for ever if there is none. May be cancelled.
    pub(crate) async fn due(&self) {
        match self.pause {
            Some(_) => sleep_until(self.due).await,
            None => std::future::pending().await,
        }
    }

    /// Notifies the watchdog that the supervisor is alive.
    pub(crate) fn calm(&mut self) {
        if let Some(pause) = self.pause {
            send(&[NotifyState::Watchdog]);
            self.due = Instant::now() + pause;
        }
    }
}
