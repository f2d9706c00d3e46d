//! Locks an interface for this process.

use std::{io, time::Instant};

use anyhow::bail;
use convoy_config::InterfaceName;
use convoy_daemon::places;
use convoy_host::{Host, HostError, Lock, Options};
use convoy_process::socket::{ENDING_PAUSE, ENDING_TIME, connect_within, hangs_up};
use tokio::time::sleep;
use tracing::warn;

use crate::state::State;

/// Locks `name` and takes over what earlier processes changed for it. Waits for a supervisor that was killed: the
/// kernel releases its lock once all its threads have ended.
///
/// # Errors
/// [`HostError::Busy`] if a supervisor is alive.
pub(crate) async fn lock(name: &InterfaceName) -> Result<Host, HostError> {
    let patience = Patience::new(name);
    loop {
        let locked = Host::open(name.as_str(), Options::default()).await;
        if !patience.waits_after(&locked) {
            return locked;
        }
        sleep(ENDING_PAUSE).await;
    }
}

/// Locks `name` for a process that changes nothing for it, as [`lock()`] does.
///
/// # Errors
/// [`HostError::Busy`] if a supervisor is alive.
pub(crate) async fn reserve(name: &InterfaceName) -> Result<Lock, HostError> {
    let patience = Patience::new(name);
    loop {
        let locked = Lock::take(name.as_str(), &Options::default());
        if !patience.waits_after(&locked) {
            return locked;
        }
        sleep(ENDING_PAUSE).await;
    }
}

/// Waits for a supervisor that is dying, for a while.
struct Patience<'a> {
    name: &'a InterfaceName,
    deadline: Instant,
}

impl<'a> Patience<'a> {
    fn new(name: &'a InterfaceName) -> Self {
        let deadline = Instant::now() + ENDING_TIME;
        Self { name, deadline }
    }

    fn waits_after<T>(&self, attempt: &Result<T, HostError>) -> bool {
        let is_busy = matches!(attempt, Err(HostError::Busy { .. }));
        // Until all its threads have ended, its socket accepts connections, too.
        let control = places::control(self.name);
        let is_dying = || match connect_within(&control, ENDING_TIME) {
            Ok(connection) => hangs_up(connection),
            // It is stopped, or hangs.
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        is_busy && is_dying() && Instant::now() < self.deadline
    }
}

/// Lets go of a lock, and leaves nothing behind unless earlier processes did.
pub(crate) async fn unlock(host: Host) {
    if !host.has_changes()
        && let Err(error) = host.undo().await
    {
        warn!("{error}");
    }
}

/// Refuses a tunnel that is up as the outer tunnel of another.
pub(crate) fn ensure_free(name: &InterfaceName) -> anyhow::Result<()> {
    match State::going_through(name) {
        Some(inner) => bail!(
            "the tunnel {inner} goes through {name}, which is up together with it (fix: `convoy down {inner}` first)"
        ),
        None => Ok(()),
    }
}
