//! One request on a daemon's UAPI socket (<https://www.wireguard.com/xplatform/>).

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::counters::Counters;

const PATIENCE: Duration = Duration::from_secs(10);
/// What Convoy answers to its own request, on one line, is what `convoy stats --json` prints.
const STATS: &str = "convoy_stats";

/// One daemon's only peer.
#[derive(Debug)]
pub(super) struct Pairing {
    /// Lower-case hex.
    pub(super) private_key: &'static str,
    pub(super) listen_port: u16,
    /// Lower-case hex.
    pub(super) peer: &'static str,
    pub(super) endpoint: SocketAddr,
    pub(super) allowed_ip: &'static str,
}

/// Configures the daemon that listens on `socket`.
pub(super) fn configure(socket: &Path, pairing: &Pairing) -> anyhow::Result<()> {
    let Pairing {
        private_key,
        listen_port,
        peer,
        endpoint,
        allowed_ip,
    } = pairing;
    let answer = exchange(
        socket,
        &format!(
            "set=1\nprivate_key={private_key}\nlisten_port={listen_port}\n\
             public_key={peer}\nendpoint={endpoint}\nallowed_ip={allowed_ip}\n\n"
        ),
    )?;
    match value(&answer, "errno") {
        Some("0") => Ok(()),
        errno => bail!("the daemon refused its configuration (errno {errno:?})"),
    }
}

/// What the daemon has counted; none where it is not Convoy.
pub(super) fn counters(socket: &Path) -> anyhow::Result<Option<Counters>> {
    let answer = exchange(socket, &format!("get={STATS}\n\n"))?;
    let counters = value(&answer, STATS).map(Counters::from_json);
    counters.transpose().context("read the daemon's counters")
}

fn exchange(socket: &Path, request: &str) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket).context("connect to the daemon's socket")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    // Not every daemon hangs up: an empty line ends an answer.
    while !answer.ends_with(b"\n\n") {
        match stream.read(&mut chunk).context("wait for the daemon")? {
            0 => break,
            read => answer.extend_from_slice(&chunk[..read]),
        }
    }
    String::from_utf8(answer).context("the daemon's answer is no text")
}

fn value<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = answer.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Answers each request with the next of `answers`.
    fn daemon(answers: &'static [&'static str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory for the socket");
        let listener = UnixListener::bind(directory.path().join("wg0.sock")).expect("a socket");
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a caller");
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        directory
    }

    #[test]
    fn counters_are_read_from_a_daemon_that_has_them() {
        let directory = daemon(&[
            "convoy_stats={\"counters\":{\"syscalls\":{\"sendmsg\":3}}}\nerrno=0\n\n",
            "errno=-22\n\n",
        ]);
        let socket = directory.path().join("wg0.sock");
        let counted = counters(&socket).unwrap().unwrap();
        assert_eq!(counted.syscalls(), Some(3));
        assert_eq!(counters(&socket).unwrap(), None);
    }

    #[test]
    fn a_refused_configuration_is_an_error() {
        let directory = daemon(&["errno=0\n\n", "errno=22\n\n"]);
        let socket = directory.path().join("wg0.sock");
        let pairing = Pairing {
            private_key: "00",
            listen_port: 1,
            peer: "00",
            endpoint: ([192, 0, 2, 1], 1).into(),
            allowed_ip: "0.0.0.0/0",
        };
        assert!(configure(&socket, &pairing).is_ok());
        assert!(configure(&socket, &pairing).is_err());
    }
}
