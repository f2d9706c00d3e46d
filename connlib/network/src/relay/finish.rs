//! Passes the failure of one end on to the other, behind what was sent before.

use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use nix::{
    libc,
    sys::socket::{setsockopt, sockopt::Linger},
};
use tokio::time::{Instant, sleep, timeout};

use super::outcome::{Ended, Outcome};
use crate::network::{Duplex, Stream};

/// The kernel does not tell when a socket's queue is empty: it is asked after this time, and then ever more rarely.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest time after which a socket's queue is looked at again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Closes both sockets: after an ordinary end as they are, otherwise by RST, for which an end that lives gets `limit` to
/// take the rest.
pub(super) async fn sockets<S: AsFd>(
    first: S,
    second: S,
    outcome: Outcome,
    limit: Duration,
) -> Ended {
    let limit = outcome.left_of(limit);
    let (alive, ended) = alive(first, second, outcome);
    if let Some(alive) = alive {
        Box::pin(reset(alive, limit)).await;
    }
    ended
}

/// Closes both connections, as [`sockets`] does.
pub(super) async fn streams(
    first: Stream,
    second: Stream,
    outcome: Outcome,
    limit: Duration,
) -> Ended {
    let limit = outcome.left_of(limit);
    let (alive, ended) = alive(first, second, outcome);
    match alive {
        Some(Stream::Kernel(socket)) => reset(socket, limit).await,
        Some(Stream::Other(stream)) => reset_other(stream, limit).await,
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

async fn reset_other(mut stream: Box<dyn Duplex>, limit: Duration) {
    if !limit.is_zero() {
        // In time or not, it ends.
        let _ = timeout(limit, poll_fn(|context| stream.poll_delivered(context))).await;
    }
    stream.reset();
}

/// Ends a connection by RST, which discards what its socket still has to send: so that is awaited.
async fn reset(socket: impl AsFd, limit: Duration) {
    let end = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    while Instant::now() < end && unacknowledged(&socket).is_ok_and(|bytes| bytes > 0) {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // Fails only on a socket that has ended.
    let _ = setsockopt(&socket, Linger, &at_once);
}

/// Bytes that the other end has not acknowledged.
fn unacknowledged(socket: &impl AsFd) -> io::Result<i32> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and SIOCOUTQ, which is TIOCOUTQ, writes one `int`.
    unsafe { ioctl::unsent(socket.as_fd().as_raw_fd(), &mut bytes) }?;
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
