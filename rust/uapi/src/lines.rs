//! Reads requests line by line from a client that may be slow, silent or never finish.

use std::{
    io,
    time::{Duration, Instant},
};

use zeroize::{Zeroize, Zeroizing};

use super::clients::Client;

/// Longest accepted line in bytes, its line feed included.
pub(super) const MAX_LINE: usize = 4096;

/// Limits on each request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From the first byte of a request to its last, and for reading one chunk of an answer.
    pub(super) time: Duration,
    /// Longest request in bytes.
    pub(super) bytes: usize,
}

/// One client's lines. They may hold keys, so they stay in one buffer, which is wiped.
pub(super) struct Lines<'a> {
    client: &'a Client,
    limits: Limits,
    /// `None` between requests: a client may keep its connection open.
    deadline: Option<Instant>,
    bytes_left: usize,
    buffer: Zeroizing<Vec<u8>>,
    start: usize,
    end: usize,
}

/// Why there is no next line. The connection cannot recover from any of these.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The client has closed its end.
    #[error("the client disconnected before its request was complete")]
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
    /// The kernel failed the read.
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

    /// Starts the next request: its time and byte limits count from here.
    pub(super) fn begin_request(&mut self) {
        let is_begun = self.start < self.end;
        self.deadline = is_begun.then(|| Instant::now() + self.limits.time);
        self.bytes_left = self.limits.bytes;
    }

    /// Wipes the lines of the finished request: its client may stay connected for long.
    pub(super) fn end_request(&mut self) {
        self.buffer[..self.start].zeroize();
        self.buffer[self.end..].zeroize();
    }

    /// Bytes read so far of the current request.
    pub(super) fn request_bytes(&self) -> usize {
        self.limits.bytes - self.bytes_left
    }

    /// Blocks for the next line and returns it without its line feed.
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

    /// Reads once and appends to the unread bytes, of which there may be at most [`MAX_LINE`].
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
            // A signal or the timeout: the next iteration finds out which.
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
