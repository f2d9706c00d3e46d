//! Answers of the supervisor to a command: [`Report::Ready`] with the namespaces, or the reason why there are none.

use std::os::unix::net::UnixStream;

use anyhow::{Context, bail};
use convoy_namespace::Spaces;
use convoy_process::{
    background::Report,
    message::{self, Connection, Lost},
};

/// The reason that a supervisor has given.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Waits for the namespaces.
///
/// # Errors
/// [`Refused`] if the supervisor says why there are none.
pub(crate) fn spaces(supervisor: &UnixStream) -> anyhow::Result<Spaces> {
    match message::receive(supervisor) {
        Ok((Report::Ready, descriptors)) => {
            Spaces::of(descriptors).context("the supervisor has sent no namespaces")
        }
        Ok((Report::Failed { reason }, _)) => Err(Refused(reason).into()),
        Err(Lost::Closed) => bail!("the supervisor ended before the tunnel was ready"),
        Err(error) => Err(error).context("cannot hear the supervisor"),
    }
}

/// Hands a command the namespaces, or tells it why it gets none.
pub(super) async fn answer(
    command: &mut Connection,
    spaces: &Result<&Spaces, String>,
) -> Result<(), Lost> {
    match spaces {
        Ok(spaces) => {
            command
                .send_with(&Report::Ready, &spaces.descriptors())
                .await
        }
        Err(reason) => command.send(&Report::failed(reason)).await,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_report_is_the_reason_and_silence_is_one_too() {
        for (said, heard) in [
            (
                "{\"failed\":{\"reason\":\"no /dev/net/tun\"}}\n",
                "no /dev/net/tun",
            ),
            ("", "the supervisor ended before the tunnel was ready"),
            ("\"ready\"\n", "the supervisor has sent no namespaces"),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(said.as_bytes()).unwrap();
            drop(theirs);
            assert_eq!(spaces(&ours).unwrap_err().to_string(), heard);
        }
    }
}
