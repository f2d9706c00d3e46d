//! The asking side: one agent, wherever it is.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::agent::LONGEST_CONVERSATION;
use super::error::Doing as _;
use super::{Event, PROTOCOL, Request, TrafficError};

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// A traffic agent that does one job at a time.
///
/// Dropping it ends it: a child process is killed, a connection closed. Calls fail when the agent has
/// ended, or does not speak [`PROTOCOL`].
#[derive(Debug)]
pub struct Agent {
    link: Link,
    lines: Receiver<String>,
}

#[derive(Debug)]
enum Link {
    Child(Child, ChildStdin),
    Remote(TcpStream),
}

impl Agent {
    /// Starts `command`, which runs [`super::serve_child`].
    pub fn spawn(mut command: Command) -> Result<Self, TrafficError> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().doing("start a traffic agent")?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Self::greet(Link::Child(child, input), output),
            _ => Err(TrafficError::Ended),
        }
    }

    /// Connects to an agent on another host.
    pub fn connect(to: SocketAddr) -> Result<Self, TrafficError> {
        let doing = "connect to the server";
        let stream = TcpStream::connect_timeout(&to, CONNECT_PATIENCE).doing(doing)?;
        stream.set_nodelay(true).doing(doing)?;
        let output = stream.try_clone().doing(doing)?;
        Self::greet(Link::Remote(stream), output)
    }

    fn greet(link: Link, output: impl Read + Send + 'static) -> Result<Self, TrafficError> {
        let (sender, lines) = channel();
        let output = BufReader::new(output.take(LONGEST_CONVERSATION));
        thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        let mut agent = Self { link, lines };
        match agent.event(HELLO_PATIENCE)? {
            Event::Hello { protocol, .. } if protocol == PROTOCOL => Ok(agent),
            Event::Hello { protocol, version } => Err(TrafficError::Version {
                theirs: protocol,
                ours: PROTOCOL,
                version,
            }),
            other => Err(TrafficError::Protocol(format!("{other:?}"))),
        }
    }

    /// Gives it a job; its events follow by [`Self::event`].
    pub fn ask(&mut self, request: &Request) -> Result<(), TrafficError> {
        let mut line = serde_json::to_vec(request).doing("encode a request")?;
        line.push(b'\n');
        let sent = match &mut self.link {
            Link::Child(_, input) => input.write_all(&line),
            Link::Remote(stream) => stream.write_all(&line),
        };
        sent.map_err(|_| TrafficError::Ended)
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`TrafficError::Agent`] for [`Event::Failed`], [`TrafficError::Timeout`] when nothing came
    /// within `patience`, [`TrafficError::Ended`] when the agent is gone.
    pub fn event(&mut self, patience: Duration) -> Result<Event, TrafficError> {
        let line = self.lines.recv_timeout(patience).map_err(|e| match e {
            RecvTimeoutError::Timeout => TrafficError::Timeout("traffic agent"),
            RecvTimeoutError::Disconnected => TrafficError::Ended,
        })?;
        match serde_json::from_str(&line) {
            Ok(Event::Failed { reason }) => Err(TrafficError::Agent(reason)),
            Ok(event) => Ok(event),
            Err(_) => Err(TrafficError::Protocol(line)),
        }
    }

    /// Waits for the port of a listening job.
    pub fn ready(&mut self, patience: Duration) -> Result<u16, TrafficError> {
        match self.event(patience)? {
            Event::Ready { port } => Ok(port),
            other => Err(TrafficError::Protocol(format!("{other:?}"))),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        match &mut self.link {
            Link::Child(child, _) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Link::Remote(stream) => {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}
