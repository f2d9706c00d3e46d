//! The request `set=convoy_log`: `level=…` and `seconds=…` in any order, then a blank line.

use std::time::Duration;

use nix::errno::Errno;

use convoy_process::logging::{
    LogLevel,
    live::{self, LevelError},
};

/// The first line.
pub(crate) const REQUEST: &str = "set=convoy_log";

/// The whole request.
pub fn request(level: LogLevel, time: Duration) -> String {
    format!(
        "{REQUEST}\nlevel={}\nseconds={}\n\n",
        level.name(),
        time.as_secs()
    )
}

/// The request's lines, without the first and the last.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    level: Option<LogLevel>,
    time: Option<Duration>,
    is_wrong: bool,
}

/// Why the level stays.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// A line is unknown, missing or has an invalid value.
    #[error("a request for another log level is invalid")]
    Invalid,
    /// See [`live::change`].
    #[error(transparent)]
    Level(#[from] LevelError),
}

impl Wanted {
    pub(super) fn take(&mut self, line: &[u8]) {
        let line = str::from_utf8(line).unwrap_or_default();
        match line.split_once('=') {
            Some(("level", level)) => self.level = LogLevel::of_name(level),
            Some(("seconds", seconds)) => {
                self.time = seconds.parse().map(Duration::from_secs).ok();
            }
            _ => self.is_wrong = true,
        }
    }

    pub(super) fn apply(&self) -> Result<(), LogError> {
        match (self.level, self.time, self.is_wrong) {
            (Some(level), Some(time), false) => Ok(live::change(level, time)?),
            _ => Err(LogError::Invalid),
        }
    }
}

impl LogError {
    /// [`Errno::ENODATA`] if there is no log.
    pub(super) fn errno(&self) -> Errno {
        match self {
            Self::Level(LevelError::NoLog) => Errno::ENODATA,
            Self::Invalid | Self::Level(LevelError::Time) => Errno::EINVAL,
            Self::Level(LevelError::Gone) => Errno::EIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let text = request(LogLevel::Debug, Duration::from_secs(300));
        let lines = text.strip_suffix("\n\n").unwrap().lines();
        let wanted = taken(lines.skip(1));
        assert_eq!(wanted.level, Some(LogLevel::Debug));
        assert_eq!(wanted.time, Some(Duration::from_secs(300)));
        // A test has no log.
        assert_eq!(wanted.apply().unwrap_err().errno(), Errno::ENODATA);
    }

    #[test]
    fn an_invalid_request_is_refused() {
        for lines in [
            &[][..],
            &["level=debug"],
            &["seconds=5"],
            &["level=loud", "seconds=5"],
            &["level=debug", "seconds=-1"],
            &["level=debug", "seconds=5", "colour=red"],
            &["level=debug", "seconds=0"],
            &["level=debug", "seconds=86401"],
        ] {
            let error = taken(lines.iter().copied()).apply().unwrap_err();
            assert_eq!(error.errno(), Errno::EINVAL, "{lines:?}");
        }
    }

    fn taken<'a>(lines: impl Iterator<Item = &'a str>) -> Wanted {
        let mut wanted = Wanted::default();
        lines.for_each(|line| wanted.take(line.as_bytes()));
        wanted
    }
}
