//! Answers of the supervisor to a command: [`READY`] with the namespaces, or the reason why there are none.

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
};

use anyhow::{Context, bail};
use convoy_namespace::Spaces;
use convoy_process::{background::READY, descriptors};
use tokio::io::Interest;

/// Longest report of an error in bytes.
const MAX_REPORT: u64 = 16 << 10;

/// The reason that a supervisor has given.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Waits for the namespaces.
///
/// # Errors
/// [`Refused`] if the supervisor says why there are none.
pub(crate) fn spaces(supervisor: &UnixStream) -> anyhow::Result<Spaces> {
    let mut first = [0];
    let received = descriptors::receive(supervisor, &mut first);
    let (length, descriptors) = received.context("cannot hear the supervisor")?;
    if length == 1 && first[0] == READY {
        return Spaces::of(descriptors.unwrap_or_default())
            .context("the supervisor has sent no namespaces");
    }
    let mut report = String::from_utf8_lossy(&first[..length]).into_owned();
    supervisor
        .take(MAX_REPORT)
        .read_to_string(&mut report)
        .context("cannot hear the supervisor")?;
    if report.is_empty() {
        bail!("the supervisor ended before the tunnel was ready");
    }
    Err(Refused(report).into())
}

/// Hands a command the namespaces.
pub(super) async fn admit(command: &tokio::net::UnixStream, spaces: &Spaces) -> io::Result<()> {
    let descriptors = spaces.descriptors();
    let send = || descriptors::send(command, &[READY], &descriptors);
    command.async_io(Interest::WRITABLE, send).await.map(drop)
}

/// Tells a command why it gets no namespaces.
pub(super) fn refuse(command: &tokio::net::UnixStream, reason: &str) {
    // It fits the socket's buffer; it fails only if the command is gone.
    let _ = command.try_write(reason.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_report_is_the_reason_and_silence_is_one_too() {
        for (said, heard) in [
            ("no /dev/net/tun", "no /dev/net/tun"),
            ("", "the supervisor ended before the tunnel was ready"),
            ("\0", "the supervisor has sent no namespaces"),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(said.as_bytes()).unwrap();
            drop(theirs);
            assert_eq!(spaces(&ours).unwrap_err().to_string(), heard);
        }
    }
}
