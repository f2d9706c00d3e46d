//! The side that asks: one agent, wherever it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::Doing as _;
use super::{Event, PROTOCOL, Request, TrafficError};

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// A line is a few hundred bytes; a server that sends more is none of ours.
const LONGEST_LINE: usize = 64 * 1024;

/// A traffic agent that does one job at a time.
///
/// Dropping it ends it: a child process is killed, a connection closed.
#[derive(Debug)]
pub struct Agent {
    link: Link,
    unread: Vec<u8>,
}

impl Agent {
    /// Starts `command`, which runs [`super::serve_child`].
    ///
    /// # Errors
    /// When it cannot be started, or does not speak [`PROTOCOL`].
    pub fn spawn(mut command: Command) -> Result<Self, TrafficError> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::from_child(piped.spawn().doing("start a traffic agent")?)
    }

    fn from_child(mut child: Child) -> Result<Self, TrafficError> {
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(TrafficError::Refused("an agent without pipes"));
        };
        Self::greet(Link::Child {
            child,
            input,
            output,
        })
    }

    /// Connects to an agent on another host.
    ///
    /// # Errors
    /// When it cannot be reached or does not speak [`PROTOCOL`].
    pub fn connect(to: SocketAddr) -> Result<Self, TrafficError> {
        let stream =
            TcpStream::connect_timeout(&to, CONNECT_PATIENCE).doing("connect to the server")?;
        stream.set_nodelay(true).doing("connect to the server")?;
        Self::greet(Link::Remote(stream))
    }

    /// Gives it a job; its events follow by [`Self::event`].
    ///
    /// # Errors
    /// When the agent has ended.
    pub fn ask(&mut self, request: &Request) -> Result<(), TrafficError> {
        let mut line = serde_json::to_vec(request).doing("encode a request")?;
        line.push(b'\n');
        let sent = match &mut self.link {
            Link::Child { input, .. } => input.write_all(&line),
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
        let deadline = Instant::now() + patience;
        loop {
            if let Some(line) = self.take_line() {
                return match serde_json::from_slice(&line) {
                    Ok(Event::Failed { reason }) => Err(TrafficError::Agent(reason)),
                    Ok(event) => Ok(event),
                    Err(_) => Err(TrafficError::Protocol(
                        String::from_utf8_lossy(&line).into_owned(),
                    )),
                };
            }
            self.read_more(deadline)?;
        }
    }

    /// Waits for the port of a listening job.
    ///
    /// # Errors
    /// As [`Self::event`], and [`TrafficError::Protocol`] for any other event.
    pub fn ready(&mut self, patience: Duration) -> Result<u16, TrafficError> {
        match self.event(patience)? {
            Event::Ready { port } => Ok(port),
            other => Err(TrafficError::Protocol(format!("{other:?}"))),
        }
    }

    fn greet(link: Link) -> Result<Self, TrafficError> {
        let mut agent = Self {
            link,
            unread: Vec::new(),
        };
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

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.unread.iter().position(|&byte| byte == b'\n')?;
        let rest = self.unread.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.unread, rest);
        line.pop();
        Some(line)
    }

    fn read_more(&mut self, deadline: Instant) -> Result<(), TrafficError> {
        if self.unread.len() > LONGEST_LINE {
            return Err(TrafficError::Protocol("an endless line".to_owned()));
        }
        wait_readable(self.link.output(), deadline)?;
        let mut chunk = [0; 4096];
        let read = match &mut self.link {
            Link::Child { output, .. } => output.read(&mut chunk),
            Link::Remote(stream) => stream.read(&mut chunk),
        };
        match read {
            Ok(0) | Err(_) => Err(TrafficError::Ended),
            Ok(read) => {
                self.unread.extend_from_slice(&chunk[..read]);
                Ok(())
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Link::Child { child, .. } = &mut self.link {
            // It may have ended already, and then there is only its exit status to collect.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug)]
enum Link {
    Child {
        child: Child,
        input: ChildStdin,
        output: ChildStdout,
    },
    Remote(TcpStream),
}

impl Link {
    fn output(&self) -> BorrowedFd<'_> {
        match self {
            Self::Child { output, .. } => output.as_fd(),
            Self::Remote(stream) => stream.as_fd(),
        }
    }
}

fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> Result<(), TrafficError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
            Ok(0) if left.is_zero() => return Err(TrafficError::Timeout("traffic agent")),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno).doing("wait for an agent"),
        }
    }
}
