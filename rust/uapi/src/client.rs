//! A client of the UAPI: one request, one answer.

use std::{io, path::Path, time::Duration};

use anyhow::{Context, bail};
use nix::errno::Errno;
use tokio::{io::Interest, net::UnixStream, time::timeout};
use zeroize::Zeroizing;

/// Time limit for an exchange: the tunnel's own limit for a request.
const TIME: Duration = Duration::from_secs(60);

/// Time for which the tunnel may neither read nor write. One that hangs holds its supervisor up for no longer.
const SILENCE: Duration = Duration::from_secs(3);

/// Further time for each byte of a request: a peer takes 75 at least, and a slow machine 0.4 ms for its keys.
const TIME_PER_BYTE: Duration = Duration::from_micros(5);

/// Longest answer in bytes: as the tunnel's limit of a request.
const MAX_ANSWER: usize = 64 << 20;

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// The tunnel does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the tunnel refuses it: {}", .0.desc())]
pub struct Refused(pub Errno);

/// Sends `request` to the tunnel that listens at `path`; returns the lines of its answer, without `errno=0`.
///
/// # Errors
/// Also if the tunnel refuses the request.
pub async fn exchange(path: &Path, request: &[u8]) -> anyhow::Result<Zeroizing<String>> {
    exchange_on(path, request, patience(request)).await
}

/// Returns how long the tunnel may be silent because of a request.
fn patience(request: &[u8]) -> Duration {
    let bytes = u32::try_from(request.len()).unwrap_or(u32::MAX);
    TIME.min(SILENCE + bytes * TIME_PER_BYTE)
}

async fn exchange_on(
    path: &Path,
    request: &[u8],
    patience: Duration,
) -> anyhow::Result<Zeroizing<String>> {
    let answered = async {
        let stream = UnixStream::connect(path).await?;
        write(&stream, request, patience).await?;
        read(&stream, patience).await
    };
    let answer = timeout(TIME, answered).await;
    let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let answer =
        answer.with_context(|| format!("cannot ask the tunnel through {}", path.display()))?;
    outcome(answer)
}

async fn write(stream: &UnixStream, mut request: &[u8], patience: Duration) -> io::Result<()> {
    while !request.is_empty() {
        timeout(patience, stream.ready(Interest::WRITABLE)).await??;
        match stream.try_write(request) {
            Ok(length) => request = &request[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It has refused the request already: the answer says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads up to the blank line.
async fn read(stream: &UnixStream, patience: Duration) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut answer = Zeroizing::new(Vec::new());
    let mut chunk = Zeroizing::new(vec![0; CHUNK]);
    while !answer.ends_with(b"\n\n") {
        timeout(patience, stream.ready(Interest::READABLE)).await??;
        match stream.try_read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => answer.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if answer.len() > MAX_ANSWER {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Ok(answer)
}

/// The lines of an answer, if its last one is `errno=0`.
fn outcome(mut answer: Zeroizing<Vec<u8>>) -> anyhow::Result<Zeroizing<String>> {
    let text = String::from_utf8(std::mem::take(&mut answer)).map(Zeroizing::new);
    let mut text = text.ok().context("the tunnel's answer is not text")?;
    let lines = text
        .trim_end_matches('\n')
        .rfind('\n')
        .map_or(0, |at| at + 1);
    let errno = text[lines..].trim_end().strip_prefix("errno=");
    let errno: Option<i32> = errno.and_then(|errno| errno.parse().ok());
    match errno.context("the tunnel's answer has no errno")? {
        0 => {
            text.truncate(lines);
            Ok(text)
        }
        errno => bail!(Refused(Errno::from_raw(errno.saturating_neg()))),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixListener,
    };

    use super::*;

    #[tokio::test]
    async fn the_lines_of_an_answer_are_returned() {
        for (answer, expected) in [
            ("errno=0\n\n", ""),
            (
                "fwmark=7\nlisten_port=9\nerrno=0\n\n",
                "fwmark=7\nlisten_port=9\n",
            ),
        ] {
            assert_eq!(*asked("get=1\n\n", answer).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_refusal_and_a_broken_answer_are_errors_that_say_so() {
        for (answer, expected) in [
            ("errno=-98\n\n", "Address already in use"),
            ("errno=x\n\n", "no errno"),
            ("fwmark=7\n\n", "no errno"),
            ("fwmark=7\nerrno=0\n", "cannot ask the tunnel"),
            ("", "cannot ask the tunnel"),
        ] {
            let error = asked("set=1\n\n", answer).await.unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[tokio::test]
    async fn a_request_longer_than_the_sockets_buffer_arrives_whole() {
        let request = format!("set=1\n{}\n", "fwmark=7\n".repeat(1 << 17));
        asked(&request, "errno=0\n\n").await.unwrap();
    }

    #[tokio::test]
    async fn a_tunnel_that_hangs_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let _hanging = UnixListener::bind(&path).unwrap();
        let long = "fwmark=7\n".repeat(1 << 17);
        for request in ["get=1\n\n", &long] {
            let asked = exchange_on(&path, request.as_bytes(), Duration::from_millis(1));
            let error = asked.await.unwrap_err();
            assert!(
                format!("{error:#}").contains("cannot ask the tunnel"),
                "{error:#}"
            );
        }
    }

    #[test]
    fn a_request_with_many_peers_has_more_time() {
        assert!(patience(b"get=1\n\n") < SILENCE + Duration::from_millis(1));
        assert!(patience(&[0; 1 << 20]) > 2 * SILENCE);
        assert_eq!(patience(&vec![0; MAX_ANSWER]), TIME);
    }

    /// The outcome of `request` to a tunnel that expects it and says `answer`.
    async fn asked(request: &str, answer: &str) -> anyhow::Result<Zeroizing<String>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (expected, answer) = (request.to_owned(), answer.to_owned());
        let tunnel = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = vec![0; expected.len()];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(heard, expected.as_bytes());
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let outcome = exchange_on(&path, request.as_bytes(), TIME).await;
        tunnel.join().unwrap();
        outcome
    }
}
