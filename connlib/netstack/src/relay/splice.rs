//! One direction between two sockets of the kernel, by splice(2) through a pipe: the bytes stay in the kernel.

use std::{
    future::poll_fn,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{
    errno::Errno,
    fcntl::{SpliceFFlags, splice},
    sys::socket::{MsgFlags, Shutdown, send, shutdown},
};
use tokio::{io::Interest, net::TcpStream, task::yield_now};

use super::{
    Failure, MIN_BUFFER, ROUNDS,
    pool::{Pipe, Pipes},
};

/// Moves bytes until the source ends, then closes the destination's side of this direction.
pub(super) async fn direction(
    source: &TcpStream,
    destination: &TcpStream,
    pipes: &Pipes,
    moved: &AtomicU64,
) -> Result<(), Failure> {
    loop {
        poll_fn(|context| source.poll_read_ready(context))
            .await
            .map_err(Failure::Read)?;
        let progress = match pipes.take() {
            Some(pipe) => {
                let progress = through(&pipe, pipes.size(), source, destination, moved).await?;
                // Empty: a failure drops the pipe with what is in it.
                pipe.give_back();
                progress
            }
            None => by_hand(source, destination, moved).await?,
        };
        match progress {
            Progress::Drained => {}
            // The other direction is polled, and so are other tasks.
            Progress::More => yield_now().await,
            Progress::End => break,
        }
    }
    shutdown(destination.as_raw_fd(), Shutdown::Write).map_err(|errno| Failure::Write(errno.into()))
}

/// How far a turn came.
enum Progress {
    /// The source has nothing for now.
    Drained,
    /// The source has more.
    More,
    /// The source has ended.
    End,
}

/// Moves bytes while the source has some, for a bounded number of rounds.
async fn through(
    pipe: &Pipe,
    size: usize,
    source: &TcpStream,
    destination: &TcpStream,
    moved: &AtomicU64,
) -> Result<Progress, Failure> {
    for _ in 0..ROUNDS {
        let filled = source.try_io(Interest::READABLE, || {
            splice_once(source, &pipe.writer, size)
        });
        let mut left = match filled {
            Ok(0) => return Ok(Progress::End),
            Ok(filled) => filled,
            // The pipe is empty, so it is the source that has nothing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Drained);
            }
            Err(error) => return Err(Failure::Read(error)),
        };
        while left > 0 {
            let write = || splice_once(&pipe.reader, destination, left);
            left -= written(destination, write, moved).await?;
        }
    }
    Ok(Progress::More)
}

/// Moves a few bytes through memory of its own: all pipes are taken.
async fn by_hand(
    source: &TcpStream,
    destination: &TcpStream,
    moved: &AtomicU64,
) -> Result<Progress, Failure> {
    let mut bytes = vec![0; MIN_BUFFER];
    match source.try_read(&mut bytes) {
        Ok(0) => return Ok(Progress::End),
        Ok(read) => bytes.truncate(read),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Drained),
        Err(error) => return Err(Failure::Read(error)),
    }
    let mut start = 0;
    while start < bytes.len() {
        let write = || {
            Ok(send(
                destination.as_raw_fd(),
                &bytes[start..],
                MsgFlags::MSG_NOSIGNAL,
            )?)
        };
        start += written(destination, write, moved).await?;
    }
    Ok(Progress::More)
}

/// Writes once, when the destination has room.
async fn written(
    destination: &TcpStream,
    write: impl Fn() -> io::Result<usize>,
    moved: &AtomicU64,
) -> Result<usize, Failure> {
    loop {
        match destination.try_io(Interest::WRITABLE, &write) {
            Ok(0) => return Err(Failure::Write(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                moved.fetch_add(written as u64, Ordering::Relaxed);
                return Ok(written);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let room = poll_fn(|context| destination.poll_write_ready(context));
                room.await.map_err(Failure::Write)?;
            }
            Err(error) => return Err(Failure::Write(error)),
        }
    }
}

fn splice_once(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
    loop {
        match splice(from.as_fd(), None, to.as_fd(), None, most, flags) {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map_err(io::Error::from),
        }
    }
}
