//! Collects datagrams for the flush at the end of the tick, in batches that one send can carry.
//!
//! Pure: no socket, no clock. Appending copies the datagram out of the caller's stack buffer.
//!
//! INVARIANT: a datagram extends only the newest batch of its address. Batches leave in the order
//! in which they were opened, so datagrams to one address leave in the order of appending.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
};

use convoy_types::{Destination, MAX_UDP_PAYLOAD};

use crate::buffers::{Buffers, LARGE};

/// Bound of one queue's memory in bytes, buffers kept for reuse included.
pub const QUEUE_BYTES: usize = 2 * 1024 * 1024;
/// Most segments in one batch: `UDP_MAX_SEGMENTS` of Linux before 6.9 (128 since).
pub const MAX_SEGMENTS: usize = 64;

const _: () = assert!(MAX_UDP_PAYLOAD <= LARGE);
const _: () = assert!(
    QUEUE_BYTES >= 2 * LARGE,
    "a jumbo datagram must fit beside a batch"
);

/// The queue has no room for a datagram, or the datagram is empty or longer than [`MAX_UDP_PAYLOAD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAppended;

/// Datagrams of one length to one destination; only the last may be shorter.
#[derive(Debug)]
pub struct Batch {
    /// The destination of all its datagrams.
    pub destination: Destination,
    segment_len: usize,
    buffer: Box<[u8]>,
    len: usize,
    sent: usize,
    appended: usize,
    sealed: bool,
    /// Its segments are sent one by one, to the last.
    split: bool,
    /// `ENOBUFS` errors so far for the whole batch or, once it is split, for its next segment.
    no_buffers: u32,
}

/// Batches in the order in which they were opened.
#[derive(Debug)]
pub struct GsoQueue {
    batches: VecDeque<Batch>,
    /// The number of batches that have left, which is the id of the front batch.
    left: u64,
    /// The id of the newest batch to each address.
    newest: HashMap<SocketAddr, u64>,
    buffers: Buffers,
}

impl Default for GsoQueue {
    fn default() -> Self {
        Self {
            batches: VecDeque::new(),
            left: 0,
            newest: HashMap::new(),
            buffers: Buffers::new(QUEUE_BYTES),
        }
    }
}

impl GsoQueue {
    /// Appends `datagram` to the newest batch of its destination, or opens a new one.
    ///
    /// # Errors
    /// [`NotAppended`] if there is no room: flush, then append it again. Also for a datagram that is empty
    /// or longer than [`MAX_UDP_PAYLOAD`], which no retry helps.
    pub fn append(
        &mut self,
        destination: &Destination,
        datagram: &[u8],
    ) -> Result<(), NotAppended> {
        if datagram.is_empty() || datagram.len() > MAX_UDP_PAYLOAD {
            return Err(NotAppended);
        }
        if let Some(index) = self.newest_batch(destination.to) {
            let batch = &mut self.batches[index];
            if batch.can_append(destination, datagram.len())
                && batch.make_room(datagram.len(), &mut self.buffers)
            {
                batch.push(datagram);
                return Ok(());
            }
        }
        self.open(destination, datagram)
    }

    /// Returns whether there is room for a datagram of any length.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.buffers.has_room()
    }

    /// Number of datagrams that surely fit, whatever their lengths and destinations.
    #[must_use]
    pub fn room(&self) -> usize {
        self.buffers.room()
    }

    /// Returns whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The number of batches that have left so far.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The oldest batch.
    #[must_use]
    pub fn front(&mut self) -> Option<&mut Batch> {
        self.batches.front_mut()
    }

    /// Removes the oldest batch, whether it was sent or given up.
    pub fn pop_front(&mut self) {
        let Some(batch) = self.batches.pop_front() else {
            return;
        };
        if self.newest.get(&batch.destination.to) == Some(&self.left) {
            self.newest.remove(&batch.destination.to);
        }
        self.left += 1;
        self.buffers.give_back(batch.buffer);
    }

    fn newest_batch(&self, to: SocketAddr) -> Option<usize> {
        let back = self.batches.back()?;
        if back.destination.to == to {
            return Some(self.batches.len() - 1);
        }
        let id = self.newest.get(&to)?;
        Some((id - self.left) as usize)
    }

    fn open(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), NotAppended> {
        let buffer = self.buffers.take(datagram.len()).ok_or(NotAppended)?;
        let mut batch = Batch {
            destination: *destination,
            segment_len: datagram.len(),
            buffer,
            len: 0,
            sent: 0,
            appended: 0,
            sealed: false,
            split: false,
            no_buffers: 0,
        };
        batch.push(datagram);
        let id = self.left + self.batches.len() as u64;
        self.newest.insert(destination.to, id);
        self.batches.push_back(batch);
        Ok(())
    }
}

impl Batch {
    /// The bytes not sent yet: segments of [`Self::segment_len`] bytes, of which the last may be shorter.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..self.len]
    }

    /// The length of every segment except the last, in bytes.
    #[must_use]
    pub fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// The number of segments not sent yet.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.unsent().len().div_ceil(self.segment_len)
    }

    /// The first segment not sent yet; empty once all are sent.
    #[must_use]
    pub(crate) fn first_segment(&self) -> &[u8] {
        let unsent = self.unsent();
        &unsent[..self.segment_len.min(unsent.len())]
    }

    /// Marks the first segment as sent or given up.
    pub fn advance(&mut self) {
        self.sent += self.first_segment().len();
        self.sealed = true;
        self.no_buffers = 0;
    }

    /// Makes the rest of the batch go one segment at a time.
    pub fn split(&mut self) {
        self.split = true;
    }

    /// Returns whether one send may carry all unsent segments together.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.split && self.segments() > 1
    }

    /// Counts an `ENOBUFS` for the next send; returns how many there were so far.
    ///
    /// Seals the batch: a datagram appended now would get fewer retries than others.
    pub(crate) fn count_no_buffers(&mut self) -> u32 {
        self.sealed = true;
        self.no_buffers += 1;
        self.no_buffers
    }

    fn can_append(&self, destination: &Destination, len: usize) -> bool {
        // The kernel cuts at equal distances, so nothing may follow a shorter segment.
        let is_open = !self.sealed;
        let same_header = self.destination == *destination;
        // No segment may be longer than the first.
        let fits_the_segment = len <= self.segment_len;
        let fits_one_send = self.len + len <= MAX_UDP_PAYLOAD && self.appended < MAX_SEGMENTS;
        is_open && same_header && fits_the_segment && fits_one_send
    }

    /// Moves the batch to a large buffer if `len` more bytes do not fit its present one.
    fn make_room(&mut self, len: usize, buffers: &mut Buffers) -> bool {
        if self.len + len <= self.buffer.len() {
            return true;
        }
        let Some(mut large) = buffers.take(LARGE) else {
            return false;
        };
        large[..self.len].copy_from_slice(&self.buffer[..self.len]);
        buffers.give_back(std::mem::replace(&mut self.buffer, large));
        true
    }

    fn push(&mut self, datagram: &[u8]) {
        self.buffer[self.len..][..datagram.len()].copy_from_slice(datagram);
        self.len += datagram.len();
        self.appended += 1;
        self.sealed |= datagram.len() < self.segment_len;
    }
}

#[cfg(test)]
mod tests;
