//! Reads requests line by line from a client that may be slow, silent or endless.

use std::{
    io,
    time::{Duration, Instant},
};

use zeroize::{Zeroize, Zeroizing};

use super::clients::Client;

/// The longest line that is read, in bytes with its line feed.
pub(super) const MAX_LINE: usize = 4096;

/// What one client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From the first byte of a request to its last, and for taking a part of an answer.
    pub(super) time: Duration,
    /// The longest request, in bytes.
    pub(super) bytes: usize,
}

/// The lines of one client; they may hold keys, are kept in one buffer and are wiped with it.
pub(super) struct Lines<'a> {
    client: &'a Client,
    limits: Limits,
    /// `None` before a request: a client may keep its connection for later.
    deadline: Option<Instant>,
    bytes_left: usize,
    buffer: Zeroizing<Vec<u8>>,
    start: usize,
    end: usize,
}

/// Why there is no next line. None of it can be recovered from on the same connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The client has closed its end.
    #[error("the client closed before its request was complete")]
    Ended,
    /// See [`MAX_LINE`].
    #[error("a line is longer than {MAX_LINE} bytes")]
    LineTooLong,
    /// See [`Limits::bytes`].
    #[error("the request is longer than {0} bytes")]
    RequestTooLong(usize),
    /// See [`Limits::time`].
    #[error("the request was not complete after {0:?}")]
    TimedOut(Duration),
    /// The kernel's answer to reading.
    #[error("cannot read the request: {0}")]
    Io(#[from] io::Error),
}

impl<'a> Lines<'a> {
    pub(super) fn new(client: &'a Client, limits: Limits) -> Self {
        Self {
            client,
            limits,
            deadline: None,
            bytes_left: limits.bytes,
            buffer: Zeroizing::new(vec![0; 4 * MAX_LINE]),
            start: 0,
            end: 0,
        }
    }

    /// Starts the next request: its time and its bytes are counted from here.
    pub(super) fn begin_request(&mut self) {
        let is_begun = self.start < self.end;
        self.deadline = is_begun.then(|| Instant::now() + self.limits.time);
        self.bytes_left = self.limits.bytes;
    }

    /// Wipes what was read of the request: its client may keep its connection for long.
    pub(super) fn end_request(&mut self) {
        self.buffer[..self.start].zeroize();
        self.buffer[self.end..].zeroize();
    }

    /// The bytes of the present request that were read so far.
    pub(super) fn request_bytes(&self) -> usize {
        self.limits.bytes - self.bytes_left
    }

    /// Blocks for the next line, and gives it without its line feed.
    pub(super) fn next_line(&mut self) -> Result<&[u8], ReadError> {
        let mut searched = 0;
        let length = loop {
            let longest = self.end.min(self.start + MAX_LINE);
            let unsearched = &self.buffer[self.start + searched..longest];
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                break searched + at;
            }
            searched += unsearched.len();
            if searched == MAX_LINE {
                return Err(ReadError::LineTooLong);
            }
            self.fill()?;
        };
        let line = self.start..self.start + length;
        self.start = line.end + 1;
        Ok(&self.buffer[line])
    }

    /// Reads once, behind what is there. At most [`MAX_LINE`] unread bytes may be there.
    fn fill(&mut self) -> Result<(), ReadError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;

        let time_left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if time_left.is_some_and(|time| time.is_zero()) {
            return Err(ReadError::TimedOut(self.limits.time));
        }
        let read = match self.client.read(&mut self.buffer[self.end..], time_left) {
            Ok(0) => return Err(ReadError::Ended),
            Ok(read) => read,
            // A signal, or the time-out: the next turn tells which.
            Err(e) if is_retryable(&e) => 0,
            Err(e) => return Err(e.into()),
        };
        self.end += read;
        self.deadline
            .get_or_insert_with(|| Instant::now() + self.limits.time);
        let too_long = ReadError::RequestTooLong(self.limits.bytes);
        self.bytes_left = self.bytes_left.checked_sub(read).ok_or(too_long)?;
        Ok(())
    }
}

fn is_retryable(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
