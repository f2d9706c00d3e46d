//! Messages that wait for one task.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    task::{Context, Poll, Waker},
};

use super::counters::Dropped;

/// Bytes, and messages, that wait.
const MOST_BYTES: usize = 256 << 10;
const MOST_MESSAGES: usize = 1024;

/// Messages, each with something to know about it.
#[derive(Debug)]
pub(super) struct Queue<T> {
    bytes: VecDeque<u8>,
    messages: VecDeque<(usize, T)>,
    /// Bytes of memory that an empty queue keeps at most.
    kept: usize,
    waker: Option<Waker>,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(kept: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            messages: VecDeque::new(),
            kept,
            waker: None,
            is_closed: false,
        }
    }

    pub(super) fn push(&mut self, about: T, message: &[u8]) -> Result<(), Dropped> {
        if self.is_closed {
            return Err(Dropped::NobodyListens);
        }
        let is_full =
            self.messages.len() >= MOST_MESSAGES || self.bytes.len() + message.len() > MOST_BYTES;
        if is_full {
            return Err(Dropped::QueueFull);
        }
        self.bytes.extend(message);
        self.messages.push_back((message.len(), about));
        self.wake();
        Ok(())
    }

    /// The next message, as much of it as fits.
    pub(super) fn pop(&mut self, buffer: &mut [u8]) -> io::Result<(usize, T)> {
        let Some((length, about)) = self.messages.pop_front() else {
            return Err(match self.is_closed {
                true => ErrorKind::NetworkDown,
                false => ErrorKind::WouldBlock,
            }
            .into());
        };
        let taken = length.min(buffer.len());
        let (first, second) = self.bytes.as_slices();
        let from_first = taken.min(first.len());
        buffer[..from_first].copy_from_slice(&first[..from_first]);
        buffer[from_first..taken].copy_from_slice(&second[..taken - from_first]);
        self.bytes.drain(..length);
        if self.bytes.is_empty() && self.bytes.capacity() > self.kept {
            self.bytes = VecDeque::new();
        }
        Ok((taken, about))
    }

    /// Waits for a message, or the end. Wakes the task that has called it last.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_closed || !self.messages.is_empty() {
            return Poll::Ready(());
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Nothing follows.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
