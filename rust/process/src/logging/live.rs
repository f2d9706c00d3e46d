//! Another level for a time: `convoy log`. It goes back by itself.

use std::{convert::Infallible, future::pending, sync::OnceLock, time::Duration};

use thiserror::Error;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::{error, info, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, Registry, reload::Handle};

use super::{choice::LogLevel, filter::Wanted};

/// The longest time: nobody should have to remember it.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The log that can change; none if nobody could read it.
static LIVE: OnceLock<Live> = OnceLock::new();

#[derive(Debug)]
struct Live {
    /// Wish of the user at the start of the process.
    wanted: Wanted,
    handle: Handle<EnvFilter, Registry>,
    /// When to go back; `None` if there is nothing to go back from.
    until: watch::Sender<Option<Instant>>,
}

/// Why the level stays.
#[derive(Debug, Error)]
pub enum LevelError {
    /// The process was started without one.
    #[error(
        "it has no log (fix: start it with LOG_LEVEL=info, in the foreground, or under systemd)"
    )]
    NoLog,
    /// See [`LONGEST`].
    #[error("the time is a second at least and a day at most")]
    Time,
    /// The log has been shut down.
    #[error("its log cannot be changed")]
    Gone,
}

pub(super) fn enable(wanted: Wanted, handle: Handle<EnvFilter, Registry>) {
    let until = watch::Sender::new(None);
    LIVE.get_or_init(|| Live {
        wanted,
        handle,
        until,
    });
}

/// Logs up to `level` for `time`, whatever the filter was. A later call takes the place of an earlier one.
pub fn change(level: LogLevel, time: Duration) -> Result<(), LevelError> {
    if time < Duration::from_secs(1) || time > LONGEST {
        return Err(LevelError::Time);
    }
    let live = LIVE.get().ok_or(LevelError::NoLog)?;
    let filter = Wanted::Level(level.into()).filter();
    // First, so that the end of an earlier time does not undo this.
    live.until.send_replace(Some(Instant::now() + time));
    let changed = filter
        .ok()
        .and_then(|filter| live.handle.reload(filter).ok());
    changed.ok_or(LevelError::Gone)?;
    info!("logging at level {} for {} s", level.name(), time.as_secs());
    Ok(())
}

/// Goes back when it is time. Sleeps while there is nothing to go back from.
pub async fn keep() -> Infallible {
    let Some(live) = LIVE.get() else {
        return pending().await;
    };
    let mut changes = live.until.subscribe();
    loop {
        let until = *changes.borrow_and_update();
        let due = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::select! {
            // It fails only once the sender is gone, which is static.
            _ = changes.changed() => {}
            () = due => live.go_back(until),
        }
    }
}

impl Live {
    /// Goes back, unless there was another call meanwhile.
    fn go_back(&self, until: Option<Instant>) {
        let is_due = self.until.send_if_modified(|current| {
            let is_due = *current == until;
            if is_due {
                *current = None;
            }
            is_due
        });
        if !is_due {
            return;
        }
        info!("logging as before");
        let restored = self
            .wanted
            .filter()
            .map(|filter| self.handle.reload(filter));
        if !matches!(restored, Ok(Ok(()))) {
            error!("cannot go back to the former log level");
        }
    }
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}
