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
    sys::socket::{MsgFlags, Shutdown, recv, send, shutdown},
};
use tokio::{io::Interest, net::TcpStream, task::yield_now};

use super::{
    Failure, MIN_BUFFER, ROUNDS,
    pool::{Pipe, Pipes},
};

/// Bytes that are read where urgent data begins: splice(2) takes those behind them again.
const BEHIND_MARK: usize = 256;

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
        let filled = source.try_io(Interest::READABLE, || fill(source, pipe, size));
        let mut left = match filled {
            Ok(Filled::End) => return Ok(Progress::End),
            Ok(Filled::Pipe(filled)) => filled,
            Ok(Filled::Memory(bytes)) => {
                write_all(destination, &bytes, moved).await?;
                continue;
            }
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

/// Bytes that have left the source, and where they are.
enum Filled {
    Pipe(usize),
    Memory(Vec<u8>),
    End,
}

/// Takes bytes from the source.
///
/// splice(2) stops in front of urgent data: it says that there is nothing, or that the source has ended, which
/// recv(2) alone knows.
fn fill(source: &TcpStream, pipe: &Pipe, size: usize) -> io::Result<Filled> {
    match splice_once(source, &pipe.writer, size) {
        Ok(0) => {}
        Ok(filled) => return Ok(Filled::Pipe(filled)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    let mut bytes = [0; BEHIND_MARK];
    match recv(source.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)? {
        0 => Ok(Filled::End),
        read => Ok(Filled::Memory(bytes[..read].to_vec())),
    }
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
    write_all(destination, &bytes, moved).await?;
    Ok(Progress::More)
}

async fn write_all(
    destination: &TcpStream,
    mut bytes: &[u8],
    moved: &AtomicU64,
) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let write = || {
            Ok(send(
                destination.as_raw_fd(),
                bytes,
                MsgFlags::MSG_NOSIGNAL,
            )?)
        };
        let written = written(destination, write, moved).await?;
        bytes = &bytes[written..];
    }
    Ok(())
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
