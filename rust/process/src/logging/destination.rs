//! Where the log goes, and so in which format.

use std::{
    env,
    io::{self, IsTerminal as _},
    os::{fd::AsFd, unix::net::UnixDatagram},
};

use nix::sys::stat::{FileStat, SFlag, fstat, major, minor};

use super::{choice::LogFormat, journal};

/// One that is open.
#[derive(Debug)]
pub(super) enum Destination {
    Text { is_terminal: bool },
    Json,
    Journal(UnixDatagram),
}

impl Destination {
    /// # Errors
    /// If the journal was asked for and cannot be reached.
    pub(super) fn of(format: LogFormat) -> io::Result<Self> {
        let is_terminal = io::stdout().is_terminal();
        match format {
            LogFormat::Text => Ok(Self::Text { is_terminal }),
            LogFormat::Json => Ok(Self::Json),
            LogFormat::Journal => journal::open().map(Self::Journal),
            LogFormat::Auto if is_terminal => Ok(Self::Text { is_terminal }),
            LogFormat::Auto if is_journal(io::stdout()) => {
                // Without its socket, the journal takes lines of stdout.
                Ok(journal::open().map_or(Self::Json, Self::Journal))
            }
            LogFormat::Auto => Ok(Self::Json),
        }
    }
}

/// Returns whether systemd has connected a stream to its journal (systemd.exec(5)).
pub(super) fn is_journal(stream: impl AsFd) -> bool {
    env::var("JOURNAL_STREAM").is_ok_and(|journal| is_stream(&journal, stream))
}

/// Returns whether a stream is the one of this device and inode number.
fn is_stream(numbers: &str, stream: impl AsFd) -> bool {
    let Some((device, inode)) = numbers.split_once(':') else {
        return false;
    };
    fstat(stream).is_ok_and(|it| device.parse() == Ok(it.st_dev) && inode.parse() == Ok(it.st_ino))
}

/// Returns whether a stream leads to the same file as stdout.
pub(super) fn is_stdout(stream: impl AsFd) -> bool {
    let identity = |file: FileStat| (file.st_dev, file.st_ino, file.st_rdev);
    let stream = fstat(stream).map(identity);
    stream.is_ok() && stream == fstat(io::stdout()).map(identity)
}

/// Returns whether a stream is `/dev/null`.
pub(super) fn is_null(stream: impl AsFd) -> bool {
    fstat(stream).is_ok_and(|it| {
        let is_device = SFlag::from_bits_truncate(it.st_mode).contains(SFlag::S_IFCHR);
        is_device && (major(it.st_rdev), minor(it.st_rdev)) == (1, 3)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_journal_is_recognised_by_the_numbers_of_its_stream() {
        let (ours, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let numbers = fstat(&ours)
            .map(|it| format!("{}:{}", it.st_dev, it.st_ino))
            .unwrap();
        assert!(is_stream(&numbers, &ours));
        assert!(!is_stream(&numbers, &other));
        for wrong in ["", ":", "1", "a:b", "-1:-1"] {
            assert!(!is_stream(wrong, &ours), "{wrong}");
        }
    }

    #[test]
    fn nobody_reads_dev_null() {
        assert!(is_null(File::open("/dev/null").unwrap()));
        assert!(!is_null(File::open("/dev/zero").unwrap()));
        assert!(!is_null(tempfile::tempfile().unwrap()));
    }
}
