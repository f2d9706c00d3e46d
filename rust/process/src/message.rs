//! Messages between processes of this program: a line of JSON each. Descriptors come with the first byte of a line.
//!
//! [`send`] and [`receive`] wait, for processes with one thread; a [`Connection`] belongs to a runtime.

mod connection;

use std::{
    io::{self, Write as _},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use nix::errno::Errno;
use rustix::io::retry_on_intr;
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::descriptors;

pub use connection::Connection;

/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// The messages of one direction.
pub trait Message {
    /// Longest line in bytes, its line feed included.
    const MAX_BYTES: usize;
}

/// Reason why a connection is unusable.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The other end has closed it.
    #[error("it was closed")]
    Closed,
    /// See [`Message::MAX_BYTES`].
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    /// The other end takes no messages.
    #[error("messages are not read")]
    NotRead,
    /// A line is not a message.
    #[error("a message is invalid: {0}")]
    Invalid(#[from] serde_json::Error),
    /// The kernel failed it.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// Sends a message, with descriptors.
pub fn send<M: Message + Serialize>(
    mut stream: &UnixStream,
    message: &M,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Lost> {
    let line = line_of(message)?;
    let sent = descriptors::send(stream, &line, descriptors)?;
    Ok(stream.write_all(&line[sent..])?)
}

/// Waits for a message, with its descriptors. The other end sends no other before this one is answered.
///
/// # Errors
/// `EMFILE` if this process has no descriptors left for those that came with it; further messages can be received.
pub fn receive<M: Message + DeserializeOwned>(
    stream: &UnixStream,
) -> Result<(M, Vec<OwnedFd>), Lost> {
    let mut chunk = Zeroizing::new([0; CHUNK]);
    let mut line = Zeroizing::new(Vec::new());
    let (mut length, descriptors) = descriptors::receive(stream, &mut chunk[..])?;
    while length > 0 {
        line.extend_from_slice(&chunk[..length]);
        if line.len() > M::MAX_BYTES {
            return Err(Lost::TooLong(M::MAX_BYTES));
        }
        if line.ends_with(b"\n") {
            let message = serde_json::from_slice(&line)?;
            return Ok((message, descriptors.ok_or_else(lacking)?));
        }
        let read = || rustix::io::read(stream, &mut chunk[..]);
        length = retry_on_intr(read).map_err(io::Error::from)?;
    }
    Err(Lost::Closed)
}

fn lacking() -> io::Error {
    io::Error::from_raw_os_error(Errno::EMFILE as i32)
}

/// Returns the line of a message.
///
/// # Errors
/// [`Lost::TooLong`], or [`Lost::Invalid`] if it cannot be JSON.
pub fn line_of<M: Message + Serialize>(message: &M) -> Result<Vec<u8>, Lost> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    match line.len() <= M::MAX_BYTES {
        true => Ok(line),
        false => Err(Lost::TooLong(M::MAX_BYTES)),
    }
}

#[cfg(test)]
mod tests;
