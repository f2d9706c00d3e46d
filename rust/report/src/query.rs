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

/// Time limit for a daemon, which answers between two ticks of its event loop.
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
}

/// Asks the daemon that listens on `path`, and returns its [`Report`] as the JSON that it sent.
///
/// # Errors
///
/// If no daemon answers within ten seconds, or it is not Convoy.
pub fn query(path: &Path) -> Result<String, QueryError> {
    let connected = UnixStream::connect(path);
    let mut stream = connected.map_err(|source| QueryError::NoDaemon {
        path: path.to_owned(),
        source,
    })?;
    let answer = converse(&mut stream).map_err(QueryError::NoAnswer)?;
    let json = json_of(&answer).ok_or_else(|| QueryError::NotConvoy {
        path: path.to_owned(),
    })?;
    Ok(json.to_owned())
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
        let error = query(Path::new("/nowhere/wg0.sock")).unwrap_err();
        assert_eq!(error.to_string(), "no daemon answers on /nowhere/wg0.sock");
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
            query(&path)
        })
    }
}
