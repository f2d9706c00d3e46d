//! Passes the failure of one end on to the other, behind what was sent before.

use std::{future::poll_fn, io, os::fd::AsRawFd, time::Duration};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{Ended, Outcome};
use crate::network::{Duplex, Stream};

/// How long the end that lives may take to receive what the failed one had sent.
pub(super) const LIMIT: Duration = if cfg!(test) {
    Duration::from_secs(2)
} else {
    Duration::from_secs(10)
};
/// The kernel does not tell when a socket's queue is empty: it is asked after this time, and then ever more rarely.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Closes both sockets: after an ordinary end as they are, otherwise by RST.
pub(super) async fn sockets(first: TcpStream, second: TcpStream, outcome: Outcome) -> Ended {
    let is_late = outcome.is_late();
    let (alive, ended) = alive(first, second, outcome);
    if let Some(alive) = alive {
        Box::pin(reset(alive, is_late)).await;
    }
    ended
}

/// Closes both connections, as [`sockets`] does.
pub(super) async fn streams(first: Stream, second: Stream, outcome: Outcome) -> Ended {
    let is_late = outcome.is_late();
    let (alive, ended) = alive(first, second, outcome);
    match alive {
        Some(Stream::Kernel(socket)) => reset(socket, is_late).await,
        Some(Stream::Other(stream)) => reset_other(stream, is_late).await,
        None => {}
    }
    ended
}

/// The end that lives although the other one has failed.
fn alive<T>(first: T, second: T, outcome: Outcome) -> (Option<T>, Ended) {
    let are_alive = outcome.are_alive();
    let ended = outcome.ended();
    let alive = match (&ended, are_alive) {
        (Ended::Failed(_), (true, false)) => Some(first),
        (Ended::Failed(_), (false, true)) => Some(second),
        _ => None,
    };
    (alive, ended)
}

async fn reset_other(mut stream: Box<dyn Duplex>, is_late: bool) {
    if !is_late {
        // In time or not, it ends.
        let _ = timeout(LIMIT, poll_fn(|context| stream.poll_delivered(context))).await;
    }
    stream.reset();
}

/// Ends a connection by RST, which discards what its socket still has to send: so that is awaited.
async fn reset(socket: TcpStream, is_late: bool) {
    let limit = if is_late { Duration::ZERO } else { LIMIT };
    let end = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    while Instant::now() < end && unacknowledged(&socket).is_ok_and(|bytes| bytes > 0) {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Stream::Kernel(socket).close_by_reset();
}

/// Bytes that the other end has not acknowledged.
fn unacknowledged(socket: &TcpStream) -> io::Result<i32> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and SIOCOUTQ, which is TIOCOUTQ, writes one `int`.
    unsafe { ioctl::unsent(socket.as_raw_fd(), &mut bytes) }?;
    Ok(bytes)
}

mod ioctl {
    nix::ioctl_read_bad!(
        /// tcp(7)
        unsent,
        nix::libc::TIOCOUTQ,
        nix::libc::c_int
    );
}
