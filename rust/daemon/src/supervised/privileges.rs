//! Privileged operations: the supervisor does for the tunnel what needs `CAP_NET_ADMIN`, which the tunnel has given up.
//!
//! ```text
//!  tunnel ──▶ Prepare, with the UDP sockets    supervisor: SO_MARK, SO_RCVBUFFORCE, SO_SNDBUFFORCE
//!         ◀── Prepared
//!         ──▶ PrepareStream, with a TCP socket    supervisor: SO_MARK
//!         ◀── Prepared
//!         ──▶ ForgetMtu                        supervisor: RTM_DELROUTE of a cached route
//! ``` The tunnel hands one end of a socket pair to each supervisor that it greets. Marks last as long as the sockets:
//! without a supervisor, the tunnel keeps using those that it has, and only new sockets with a mark, or another mark,
//! must wait for the next supervisor.

use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use convoy_gso::udp::{Flow, Privileged, grow_buffers, have_mark};
use convoy_process::descriptors;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};
use serde::{Deserialize, Serialize};
use tracing::debug;

/// Time limit for a supervisor to appear, and for its answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Longest message in bytes.
pub const MAX_BYTES: usize = 512;

/// A request of the tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Wish {
    /// Sets the mark of the UDP sockets that come with it, and grows their buffers. Is answered.
    Prepare {
        /// Number of the request.
        id: u64,
        /// The mark; 0 for none.
        mark: u32,
    },
    /// Sets the mark of the TCP socket that comes with it. Is answered.
    PrepareStream {
        /// Number of the request.
        id: u64,
        /// The mark.
        mark: u32,
    },
    /// Makes the kernel forget the path MTU that it has learnt for a flow.
    ForgetMtu {
        /// Destination of the flow.
        to: SocketAddr,
        /// Its source address, if it has one of its own.
        source: Option<IpAddr>,
        /// Its source port.
        port: u16,
        /// Its mark; 0 for none.
        mark: u32,
    },
    /// A kind of another version.
    #[serde(other)]
    Unknown,
}

/// Answers [`Wish::Prepare`] and [`Wish::PrepareStream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Prepared {
    /// Number of the request.
    pub id: u64,
    /// The kernel's error number.
    pub error: Option<i32>,
}

/// The supervisor's privileges.
#[derive(Clone, Debug)]
pub(crate) struct SupervisorsPrivileges {
    shared: Arc<Shared>,
    time: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held from a request to its answer: another thread would take the answer for a late one.
    asking: Mutex<()>,
    line: Mutex<Line>,
    is_new: Condvar,
}

/// Connection to the present supervisor.
#[derive(Debug, Default)]
struct Line {
    /// `None` without a supervisor.
    socket: Option<Arc<OwnedFd>>,
    last_id: u64,
}

impl SupervisorsPrivileges {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::default(),
            time: ANSWER_TIME,
        }
    }

    /// Starts a connection for a new supervisor; returns the supervisor's end.
    pub(super) fn another(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        self.line().socket = Some(Arc::new(ours));
        self.shared.is_new.notify_all();
        Ok(theirs)
    }

    /// Closes the connection to the supervisor.
    pub(super) fn lost(&self) {
        self.line().socket = None;
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        let line = self.shared.line.lock();
        line.unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the present supervisor, or the next one, until `deadline`.
    fn ask(
        &self,
        sockets: &[BorrowedFd<'_>],
        wish: impl Fn(u64) -> Wish,
        deadline: Instant,
    ) -> io::Result<Option<i32>> {
        loop {
            let (socket, id) = self.await_line(deadline)?;
            let asking = self.shared.asking.lock();
            let asking = asking.unwrap_or_else(PoisonError::into_inner);
            let outcome = exchange(&socket, sockets, wish(id), id, deadline);
            drop(asking);
            match outcome {
                Err(error) if is_closed(&error) => {
                    debug!("The supervisor is gone without having set the mark: {error}");
                    self.give_up(&socket);
                }
                outcome => return outcome,
            }
        }
    }

    fn await_line(&self, deadline: Instant) -> io::Result<(Arc<OwnedFd>, u64)> {
        let mut line = self.line();
        loop {
            if let Some(socket) = line.socket.clone() {
                line.last_id += 1;
                return Ok((socket, line.last_id));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "there is no supervisor to set the mark (fix: `convoy up` again)",
                ));
            }
            let waited = self.shared.is_new.wait_timeout(line, left);
            line = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets a broken connection, unless it has been replaced.
    fn give_up(&self, socket: &Arc<OwnedFd>) {
        let mut line = self.line();
        if line
            .socket
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, socket))
        {
            line.socket = None;
        }
    }

    #[cfg(test)]
    fn with_time(self, time: Duration) -> Self {
        Self { time, ..self }
    }
}

impl Privileged for SupervisorsPrivileges {
    fn prepare(&self, sockets: &[BorrowedFd<'_>], mark: u32) -> io::Result<()> {
        let is_marked = have_mark(sockets, mark)?;
        if is_marked && self.line().socket.is_none() {
            // At the start, there is no supervisor yet, and these sockets only probe the kernel.
            grow_buffers(sockets);
            return Ok(());
        }
        let wish = |id| Wish::Prepare { id, mark };
        let outcome = self.ask(sockets, wish, Instant::now() + self.time);
        match outcome {
            Ok(None) => Ok(()),
            // Only the buffers need it.
            _ if is_marked => {
                grow_buffers(sockets);
                Ok(())
            }
            Ok(Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Err(error) => Err(error),
        }
    }

    fn prepare_stream(&self, socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
        let wish = |id| Wish::PrepareStream { id, mark };
        match self.ask(&[socket], wish, Instant::now() + self.time)? {
            None => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn forget_learnt_mtu(&self, flow: &Flow) {
        let (source, port) = flow.source;
        let wish = Wish::ForgetMtu {
            to: flow.to,
            source,
            port,
            mark: flow.mark,
        };
        // It is held only briefly.
        let socket = self.line().socket.clone();
        if let (Some(socket), Ok(message)) = (socket, serde_json::to_vec(&wish)) {
            // If there is no room or no supervisor, the entry in the kernel expires by itself later.
            let _ = send(&socket, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
}

/// Returns whether an error means that the other end is closed. Others, such as a lack of memory, pass.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof
    )
}

/// Sends a request with these sockets and waits for its answer. Skips late answers to other requests.
fn exchange(
    line: &OwnedFd,
    sockets: &[BorrowedFd<'_>],
    wish: Wish,
    id: u64,
    deadline: Instant,
) -> io::Result<Option<i32>> {
    let message = serde_json::to_vec(&wish)?;
    while let Err(error) = descriptors::send(line, &message, sockets) {
        match error.kind() {
            io::ErrorKind::WouldBlock => await_ready(line, PollFlags::OUT, deadline)?,
            _ => return Err(error),
        }
    }
    let mut buffer = [MaybeUninit::uninit(); MAX_BYTES];
    loop {
        match recv(line, &mut buffer, RecvFlags::empty()) {
            Ok((([], _), _)) => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(((answer, _), _)) => match serde_json::from_slice::<Prepared>(answer) {
                Ok(prepared) if prepared.id == id => return Ok(prepared.error),
                _ => {}
            },
            Err(rustix::io::Errno::AGAIN) => await_ready(line, PollFlags::IN, deadline)?,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn await_ready(line: &OwnedFd, events: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut polled = [PollFd::from_borrowed_fd(line.as_fd(), events)];
    match poll(&mut polled, Some(&left)) {
        Ok(0) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the supervisor does not answer",
        )),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
