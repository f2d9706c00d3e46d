//! Queries a running daemon.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::Report;

/// The first line of the request; a blank line ends it.
pub const REQUEST: &str = "get=convoy_stats";

/// The line of JSON begins with it.
const PREFIX: &str = "convoy_stats=";

/// Answer of a daemon whose tunnel has ended: `ENODEV`.
const ENDING: &str = "errno=-19";

/// Time limit for connecting, and for a daemon, which answers between two ticks of its event loop.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// Nothing listens on the socket.
    #[error("no daemon answers on {}", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The daemon closed the connection, or took too long.
    #[error("the daemon did not answer")]
    NoAnswer(#[source] io::Error),
    /// Another implementation of WireGuard listens there.
    #[error("the daemon on {} is not convoy", path.display())]
    NotConvoy {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon's tunnel has ended, and the daemon is about to.
    #[error("the daemon on {} is ending", path.display())]
    Ending {
        /// The socket.
        path: PathBuf,
    },
}

/// Asks the daemon that listens on `path`, and returns its [`Report`] as the JSON that it sent. `connect` connects to
/// a socket, and fails with `WouldBlock` if that takes longer than the given time.
///
/// # Errors
///
/// If no daemon answers in time, or it is not Convoy.
pub fn query(
    path: &Path,
    connect: impl FnOnce(&Path, Duration) -> io::Result<UnixStream>,
) -> Result<String, QueryError> {
    let path_of = || path.to_owned();
    let mut stream = connect(path, TIMEOUT).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => QueryError::NoAnswer(source),
        _ => QueryError::NoDaemon {
            path: path_of(),
            source,
        },
    })?;
    let answer = converse(&mut stream).map_err(QueryError::NoAnswer)?;
    match json_of(&answer) {
        Some(json) => Ok(json.to_owned()),
        None if answer.lines().any(|line| line == ENDING) => {
            Err(QueryError::Ending { path: path_of() })
        }
        None => Err(QueryError::NotConvoy { path: path_of() }),
    }
}

fn converse(stream: &mut UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "{REQUEST}\n\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The JSON in a daemon's answer to [`REQUEST`]; `None` if the daemon is not Convoy.
#[must_use]
pub fn json_of(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix(PREFIX))
}

/// The daemon's side: the line that answers [`REQUEST`].
#[must_use]
pub fn answer(report: &Report) -> String {
    // INVARIANT: a report's keys are strings and its values numbers, strings, lists and maps.
    let json = serde_json::to_string(report).expect("a report is JSON");
    format!("{PREFIX}{json}\n")
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;

    #[test]
    fn a_report_survives_the_way_to_its_reader() {
        let mut report = Report {
            interface: "wg0".to_owned(),
            peers: vec![crate::Peer::default()],
            ..Report::default()
        };
        report.counters.drops.insert("inbound_replay".to_owned(), 3);
        let json = asked(&(answer(&report) + "errno=0\n\n")).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn another_implementation_is_recognised() {
        let error = asked("errno=-22\n\n").unwrap_err().to_string();
        assert!(error.ends_with("is not convoy"), "{error}");
    }

    #[test]
    fn a_socket_without_a_daemon_is_named() {
        let error = query(Path::new("/nowhere/wg0.sock"), at_once).unwrap_err();
        assert_eq!(error.to_string(), "no daemon answers on /nowhere/wg0.sock");
    }

    #[test]
    fn a_daemon_that_ends_is_not_taken_for_another_implementation() {
        let error = asked("errno=-19\n\n").unwrap_err().to_string();
        assert!(error.ends_with("is ending"), "{error}");
    }

    #[test]
    fn a_daemon_that_accepts_nothing_in_time_does_not_answer() {
        let connect = |_: &Path, limit| {
            assert_eq!(limit, TIMEOUT);
            Err(io::ErrorKind::WouldBlock.into())
        };
        let error = query(Path::new("/nowhere/wg0.sock"), connect).unwrap_err();
        assert!(matches!(error, QueryError::NoAnswer(_)), "{error}");
    }

    /// Queries a daemon that gives `answer` to the right request.
    fn asked(answer: &str) -> Result<String, QueryError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let listener = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                stream.read_to_string(&mut request).unwrap();
                assert_eq!(request, "get=convoy_stats\n\n");
                stream.write_all(answer.as_bytes()).unwrap();
            });
            query(&path, at_once)
        })
    }

    fn at_once(path: &Path, _limit: Duration) -> io::Result<UnixStream> {
        UnixStream::connect(path)
    }
}
