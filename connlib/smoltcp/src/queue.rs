//! Messages that wait for one task.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use convoy_packet::counters::Dropped;

/// Most bytes that wait in a queue.
pub(super) const MOST_BYTES: usize = 256 << 10;
/// Most messages that wait in a queue.
pub(super) const MOST_MESSAGES: usize = 1024;
/// Memory that a message takes beside its bytes.
const OVERHEAD: usize = 64;
/// Most bytes of all queues of a pool, beyond those that each may always hold.
const MOST_POOLED: usize = 16 << 20;
/// Most bytes of memory that empty queues of a pool keep.
const MOST_KEPT: usize = 16 << 20;
/// Bytes that a queue may hold however many others hold: a datagram of a usual length.
const RESERVE: usize = 2 << 10;

/// Memory that queues share.
#[derive(Debug, Default)]
pub(super) struct Pool {
    used: AtomicUsize,
    kept: AtomicUsize,
}

fn take(from: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let more = |used| Some(used + bytes).filter(|it| *it <= most);
    let taken = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    taken.is_ok()
}

/// Messages, each with something to know about it.
#[derive(Debug)]
pub(super) struct Queue<T> {
    bytes: VecDeque<u8>,
    messages: VecDeque<(usize, T)>,
    /// Bytes of memory that an empty queue keeps at most.
    kept: usize,
    pool: Arc<Pool>,
    /// Bytes taken from the pool for messages, and for memory that an empty queue keeps.
    pooled: usize,
    pooled_empty: usize,
    waker: Option<Waker>,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(kept: usize, pool: Arc<Pool>) -> Self {
        Self {
            bytes: VecDeque::new(),
            messages: VecDeque::new(),
            kept,
            pool,
            pooled: 0,
            pooled_empty: 0,
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
        let more = self.beyond_reserve(message.len() + OVERHEAD) - self.pooled;
        if more > 0 && !take(&self.pool.used, more, MOST_POOLED) {
            return Err(Dropped::MemoryFull);
        }
        self.pooled += more;
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
        let less = self.pooled - self.beyond_reserve(0);
        if less > 0 {
            self.pool.used.fetch_sub(less, Ordering::Relaxed);
            self.pooled -= less;
        }
        if self.messages.is_empty() {
            self.shrink();
        }
        Ok((taken, about))
    }

    /// Messages that wait, and their bytes.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.messages.len(), self.bytes.len())
    }

    /// Bytes beyond the reserve that the queue would hold with `more` bytes added.
    fn beyond_reserve(&self, more: usize) -> usize {
        let held = self.bytes.len() + OVERHEAD * self.messages.len() + more;
        held.saturating_sub(RESERVE)
    }

    /// Gives memory back while empty, unless it is little.
    fn shrink(&mut self) {
        let memory = self.bytes.capacity() + OVERHEAD * self.messages.capacity();
        if memory == self.pooled_empty {
            return;
        }
        self.pool
            .kept
            .fetch_sub(self.pooled_empty, Ordering::Relaxed);
        self.pooled_empty = memory;
        if memory > self.kept || !take(&self.pool.kept, memory, MOST_KEPT) {
            self.pooled_empty = 0;
            (self.bytes, self.messages) = (VecDeque::new(), VecDeque::new());
        }
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

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.pooled, Ordering::Relaxed);
        self.pool
            .kept
            .fetch_sub(self.pooled_empty, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: [u8; 1_400] = [7; 1_400];

    fn fill(queue: &mut Queue<()>) -> usize {
        std::iter::from_fn(|| queue.push((), &DATAGRAM).ok()).count()
    }

    #[test]
    fn thousands_of_queues_that_nobody_reads_hold_bounded_memory_and_each_takes_a_datagram() {
        let pool = Arc::new(Pool::default());
        let mut queues: Vec<Queue<()>> = (0..8_192)
            .map(|_| Queue::new(16 << 10, Arc::clone(&pool)))
            .collect();
        let held: Vec<_> = queues.iter_mut().map(fill).collect();
        assert!(held[0] > 100 && held.iter().all(|it| *it >= 1));
        let bytes = held.iter().sum::<usize>() * (DATAGRAM.len() + OVERHEAD);
        assert!(bytes <= MOST_POOLED + queues.len() * RESERVE, "{bytes}");
        let last = queues.last_mut().unwrap();
        assert_eq!(last.push((), &DATAGRAM), Err(Dropped::MemoryFull));
        for queue in &mut queues {
            while queue.pop(&mut [0; 2_000]).is_ok() {}
        }
        assert_eq!(pool.used.load(Ordering::Relaxed), 0);
        let kept = queues.iter().map(|it| it.bytes.capacity()).sum::<usize>();
        assert!(kept <= MOST_KEPT, "{kept}");
        // As much as before.
        assert_eq!(fill(&mut queues[8_000]), held[0]);
        drop(queues);
        for count in [&pool.used, &pool.kept] {
            assert_eq!(count.load(Ordering::Relaxed), 0);
        }
    }
}
