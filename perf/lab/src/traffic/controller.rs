//! The controller's side of one agent, local or remote.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::agent::LONGEST_CONVERSATION;
use super::protocol::{Hello, Job, PROTOCOL};
use crate::child::Killed;
use crate::error::{Doing as _, LabError, Result};

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Time by which a job may exceed its schedule.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// A traffic agent that does one job at a time.
///
/// Dropping it ends the agent: it kills a child process or closes a connection. Calls fail with
/// [`LabError::Traffic`] if the agent has ended or speaks another protocol.
#[derive(Debug)]
pub struct Agent {
    link: Link,
    lines: Receiver<String>,
}

#[derive(Debug)]
enum Link {
    Child(Killed),
    Remote(TcpStream),
}

impl Agent {
    /// Starts `command`, which runs [`super::serve_child`].
    pub fn spawn(mut command: Command) -> Result<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().doing("start a traffic agent")?;
        let output = child.stdout.take().ok_or_else(ended)?;
        Self::greet(Link::Child(Killed(child)), output)
    }

    /// Connects to an agent on another host.
    pub fn connect(to: SocketAddr) -> Result<Self> {
        let doing = "connect to the server";
        let stream = TcpStream::connect_timeout(&to, CONNECT_PATIENCE).doing(doing)?;
        stream.set_nodelay(true).doing(doing)?;
        let output = stream.try_clone().doing(doing)?;
        Self::greet(Link::Remote(stream), output)
    }

    fn greet(link: Link, output: impl Read + Send + 'static) -> Result<Self> {
        let (sender, lines) = channel();
        let output = BufReader::new(output.take(LONGEST_CONVERSATION));
        thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        let mut agent = Self { link, lines };
        let Hello { protocol, version } = agent.answer(HELLO_PATIENCE)?;
        if protocol != PROTOCOL {
            return Err(LabError::Traffic(format!(
                "the agent speaks protocol {protocol} (Convoy {version}), this program {PROTOCOL}: \
                 install the same version on both hosts"
            )));
        }
        Ok(agent)
    }

    /// Answers probes and requests at `port`, or if that is 0 at the returned one, until the agent ends, if `first`
    /// with precedence over ordinary threads.
    pub(crate) fn answer_probes(&mut self, first: bool, port: u16) -> Result<u16> {
        self.ask(&Job::Answer { first, port })?;
        self.answer(PATIENCE)
    }

    /// Sends the agent a job; read its answers with [`Self::answer`].
    pub(crate) fn ask(&mut self, job: &Job) -> Result<()> {
        let mut line = serde_json::to_vec(job).doing("encode a job")?;
        line.push(b'\n');
        let sent = match &mut self.link {
            Link::Child(child) => {
                let input = child.0.stdin.as_mut();
                input.map(|input| input.write_all(&line))
            }
            Link::Remote(stream) => Some(stream.write_all(&line)),
        };
        sent.and_then(Result::ok).ok_or_else(ended)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`LabError::Job`] if the job failed; [`LabError::Traffic`] if no answer came within `patience`, or
    /// an unexpected one.
    pub(crate) fn answer<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T> {
        let line = self.lines.recv_timeout(patience).map_err(|e| match e {
            RecvTimeoutError::Timeout => {
                LabError::Traffic("the traffic agent does not answer in time".to_owned())
            }
            RecvTimeoutError::Disconnected => ended(),
        })?;
        match serde_json::from_str::<Result<T, String>>(&line) {
            Ok(answer) => answer.map_err(LabError::Job),
            Err(_) => Err(LabError::Traffic(format!(
                "unexpected answer of the traffic agent: {line}"
            ))),
        }
    }
}

fn ended() -> LabError {
    LabError::Traffic("the traffic agent ended unexpectedly".to_owned())
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Link::Remote(stream) = &self.link {
            // An error means that it has already ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
