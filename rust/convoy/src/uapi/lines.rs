//! Reads requests line by line from a client that may be slow, silent or endless.

use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

/// The longest line that is read, in bytes with its line feed.
pub(super) const MAX_LINE: usize = 4096;

/// What one client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From the end of the last answer to the end of the request.
    pub(super) time: Duration,
    /// The longest request, in bytes.
    pub(super) bytes: usize,
}

/// The lines of one client; they may hold keys, are kept in one buffer and are wiped with it.
pub(super) struct Lines<'a> {
    stream: &'a UnixStream,
    limits: Limits,
    deadline: Instant,
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
    pub(super) fn new(stream: &'a UnixStream, limits: Limits) -> Self {
        Self {
            stream,
            limits,
            deadline: Instant::now() + limits.time,
            bytes_left: limits.bytes,
            buffer: Zeroizing::new(vec![0; 4 * MAX_LINE]),
            start: 0,
            end: 0,
        }
    }

    /// Starts the next request: its time and its bytes are counted from here.
    pub(super) fn begin_request(&mut self) {
        self.deadline = Instant::now() + self.limits.time;
        self.bytes_left = self.limits.bytes;
    }

    /// Blocks for the next line, and gives it without its line feed.
    pub(super) fn next_line(&mut self) -> Result<&[u8], ReadError> {
        let mut searched = 0;
        let length = loop {
            let unsearched = &self.buffer[self.start + searched..self.end];
            if let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') {
                break searched + at;
            }
            searched += unsearched.len();
            if searched >= MAX_LINE {
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

        let time_left = self.deadline.saturating_duration_since(Instant::now());
        if time_left.is_zero() {
            return Err(ReadError::TimedOut(self.limits.time));
        }
        self.stream.set_read_timeout(Some(time_left))?;
        let read = match self.stream.read(&mut self.buffer[self.end..]) {
            Ok(0) => return Err(ReadError::Ended),
            Ok(read) => read,
            // A signal, or the time-out: the next turn tells which.
            Err(e) if is_retryable(&e) => 0,
            Err(e) => return Err(e.into()),
        };
        self.end += read;
        let too_long = ReadError::RequestTooLong(self.limits.bytes);
        self.bytes_left = self.bytes_left.checked_sub(read).ok_or(too_long)?;
        Ok(())
    }
}

fn is_retryable(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
