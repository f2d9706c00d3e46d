//! One direction between two sockets of the kernel.
//!
//! Short messages are copied: splice(2) takes more calls for each, and a pipe. A stream goes by splice(2) through a
//! pipe: the bytes stay in the kernel, unless the destination takes none for so long that the pipe is needed elsewhere.

use std::{
    future::poll_fn,
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{SpliceFFlags, splice},
    unistd::read,
};
use tokio::{
    task::yield_now,
    time::{Instant, timeout_at},
};

use super::{
    lender::Lender,
    moderation::Load,
    outcome::{Failure, ROUNDS},
    pool::{Lease, Pipe},
    socket::Socket,
};

/// Longest message that is copied: most requests.
const SHORT: usize = 2 << 10;
/// Bytes that are read where urgent data begins: splice(2) takes those behind them again.
const BEHIND_MARK: usize = 256;
/// How long a pipe may hold the same bytes.
const PATIENCE: Duration = Duration::from_millis(100);

/// Moves bytes until the source ends, then closes the destination's side of this direction.
pub(super) async fn direction(
    source: &Socket,
    destination: &Socket,
    lender: Lender<'_>,
    moved: &AtomicU64,
) -> Result<(), Failure> {
    let mut is_stream = false;
    let mut load = Load::default();
    loop {
        poll_fn(|context| source.poll_read_ready(context))
            .await
            .map_err(Failure::Read)?;
        let passed = match is_stream {
            true => Passed::Stream,
            false => short(source, destination, moved)?,
        };
        // Boxed, because an idle connection's task would otherwise be as large as a busy one's.
        let progress = match passed {
            Passed::All(progress) => progress,
            Passed::Part(left) => {
                Box::pin(write_all(destination, &left, moved)).await?;
                Progress::More
            }
            Passed::Stream => {
                let before = moved.load(Ordering::Relaxed);
                let progress = Box::pin(stream(source, destination, lender, moved)).await?;
                let bytes = moved.load(Ordering::Relaxed) - before;
                is_stream = bytes > SHORT as u64;
                load.count(bytes);
                progress
            }
        };
        match progress {
            Progress::Drained => {}
            // The other direction is polled, and so are other tasks.
            Progress::More => yield_now().await,
            Progress::End => break,
        }
    }
    destination.end().map_err(Failure::Write)
}

/// Progress of a turn.
enum Progress {
    /// The source has nothing for now.
    Drained,
    /// The source has more.
    More,
    /// The source has ended.
    End,
}

/// Outcome of a turn that copies.
enum Passed {
    /// All that the source had.
    All(Progress),
    /// All but these bytes, for which the destination has no room.
    Part(Vec<u8>),
    /// The longest message, so that more may follow.
    Stream,
}

/// Copies short messages while the source has some, for a bounded number of rounds.
fn short(source: &Socket, destination: &Socket, moved: &AtomicU64) -> Result<Passed, Failure> {
    let mut bytes = [0; SHORT];
    for _ in 0..ROUNDS {
        let read = match source.try_read(|| source.receive(&mut bytes)) {
            Ok(0) => return Ok(Passed::All(Progress::End)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Passed::All(Progress::Drained));
            }
            Err(error) => return Err(Failure::Read(error)),
        };
        let message = &bytes[..read];
        let written = write(destination, moved, || destination.send(message))?.unwrap_or(0);
        if written < read {
            return Ok(Passed::Part(message[written..].to_vec()));
        }
        if read == SHORT {
            return Ok(Passed::Stream);
        }
    }
    Ok(Passed::All(Progress::More))
}

async fn stream(
    source: &Socket,
    destination: &Socket,
    lender: Lender<'_>,
    moved: &AtomicU64,
) -> Result<Progress, Failure> {
    match lender.pipe() {
        Some(pipe) => through(pipe, source, destination, lender, moved).await,
        None => by_hand(source, destination, lender, moved).await,
    }
}

/// Moves bytes while the source has some, for a bounded number of rounds. A destination that fails drops the pipe with
/// what is in it.
async fn through(
    pipe: Lease<'_, Pipe>,
    source: &Socket,
    destination: &Socket,
    lender: Lender<'_>,
    moved: &AtomicU64,
) -> Result<Progress, Failure> {
    let size = lender.pools.pipes.size();
    let mut progress = Progress::More;
    for _ in 0..ROUNDS {
        match source.try_read(|| fill(source, &pipe, size)) {
            Ok(Filled::End) => {
                progress = Progress::End;
                break;
            }
            Ok(Filled::Pipe(filled)) => {
                let left = drain(&pipe, filled, destination, moved).await?;
                if left > 0 {
                    return park(pipe, left, destination, lender, moved).await;
                }
                // Asking is cheaper than a splice that finds nothing.
                if filled < size && source.is_drained() {
                    progress = Progress::Drained;
                    break;
                }
            }
            Ok(Filled::Memory(bytes)) => {
                pipe.give_back();
                write_all(destination, &bytes, moved).await?;
                return Ok(Progress::More);
            }
            // The pipe is empty, so it is the source that has nothing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                progress = Progress::Drained;
                break;
            }
            Err(error) => {
                pipe.give_back();
                return Err(Failure::Read(error));
            }
        }
    }
    pipe.give_back();
    Ok(progress)
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
fn fill(source: &Socket, pipe: &Pipe, size: usize) -> io::Result<Filled> {
    let mut bytes = [0; BEHIND_MARK];
    let received = match splice_once(source, &pipe.writer, size) {
        Ok(0) => source.receive(&mut bytes),
        Ok(filled) => return Ok(Filled::Pipe(filled)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => source.receive(&mut bytes),
        Err(error) => return Err(error),
    };
    match received? {
        0 => Ok(Filled::End),
        read => Ok(Filled::Memory(bytes[..read].to_vec())),
    }
}

/// Empties a pipe; the number of bytes that the destination has not taken in time.
async fn drain(
    pipe: &Pipe,
    mut left: usize,
    destination: &Socket,
    moved: &AtomicU64,
) -> Result<usize, Failure> {
    let mut end = None;
    while left > 0 {
        match write(destination, moved, || {
            splice_once(&pipe.reader, destination, left)
        })? {
            Some(written) => left -= written,
            None => {
                let now = Instant::now();
                let end = *end.get_or_insert_with(|| now + PATIENCE);
                if now >= end {
                    break;
                }
                match timeout_at(end, room(destination)).await {
                    Ok(outcome) => outcome?,
                    Err(_) => break,
                }
            }
        }
    }
    Ok(left)
}

/// Reads what a blocked pipe holds into memory, gives the pipe back, and goes on from there.
async fn park(
    pipe: Lease<'_, Pipe>,
    mut left: usize,
    destination: &Socket,
    lender: Lender<'_>,
    moved: &AtomicU64,
) -> Result<Progress, Failure> {
    while left > 0 {
        let Some(mut parking) = lender.parking(left) else {
            left = drain(&pipe, left, destination, moved).await?;
            continue;
        };
        empty(&pipe, &mut parking.bytes).map_err(Failure::Read)?;
        pipe.give_back();
        write_all(destination, &parking.bytes, moved).await?;
        return Ok(Progress::More);
    }
    pipe.give_back();
    Ok(Progress::More)
}

/// Reads exactly as many bytes as a pipe holds.
fn empty(pipe: &Pipe, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match read(&pipe.reader, buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => buffer = &mut buffer[read..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Moves bytes through a buffer: there is no pipe.
async fn by_hand(
    source: &Socket,
    destination: &Socket,
    lender: Lender<'_>,
    moved: &AtomicU64,
) -> Result<Progress, Failure> {
    let mut memory = lender.memory();
    let progress = match source.try_read(|| source.receive(memory.bytes())) {
        Ok(0) => Progress::End,
        Ok(read) => {
            write_all(destination, &memory.bytes()[..read], moved).await?;
            Progress::More
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Progress::Drained,
        Err(error) => return Err(Failure::Read(error)),
    };
    memory.give_back();
    Ok(progress)
}

async fn write_all(
    destination: &Socket,
    mut bytes: &[u8],
    moved: &AtomicU64,
) -> Result<(), Failure> {
    while !bytes.is_empty() {
        match write(destination, moved, || destination.send(bytes))? {
            Some(written) => bytes = &bytes[written..],
            None => room(destination).await?,
        }
    }
    Ok(())
}

/// Writes once; `None` if the destination has no room.
fn write(
    destination: &Socket,
    moved: &AtomicU64,
    write: impl FnOnce() -> io::Result<usize>,
) -> Result<Option<usize>, Failure> {
    match destination.try_write(write) {
        Ok(0) => Err(Failure::Write(io::ErrorKind::WriteZero.into())),
        Ok(written) => {
            moved.fetch_add(written as u64, Ordering::Relaxed);
            Ok(Some(written))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(Failure::Write(error)),
    }
}

async fn room(destination: &Socket) -> Result<(), Failure> {
    let room = poll_fn(|context| destination.poll_write_ready(context));
    room.await.map_err(Failure::Write)
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
