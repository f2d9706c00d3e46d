//! Emptying the queue into the sockets, and what to do when the kernel refuses.
//!
//! Pure over [`SendDatagrams`]: the real sockets and a test's failing ones run the same code.
//!
//! | the kernel says | reaction |
//! |---|---|
//! | `EAGAIN` | [`Flushed::Blocked`]: the rest stays queued |
//! | `ENOBUFS` | [`Flushed::RetryAt`] 1 ms later, three times, then a counted drop; the batch is closed |
//! | `EINVAL`, `ENETUNREACH`, `EADDRNOTAVAIL` with a pinned source | the source is forgotten, the same batch sent again |
//! | `EIO`, `EINVAL` on a batch | its segments one by one, segmentation off for that address for a minute |
//! | `EMSGSIZE` on a batch | its segments one by one, segmentation off for that address for ten minutes |
//! | anything else | a counted drop of that datagram or batch |

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

pub use counters::FlushCounters;

use crate::queue::{Batch, Destination, GsoQueue};

mod counters;

/// How long segmentation stays off for an address after `EMSGSIZE`: the kernel's path MTU cache.
const RETRY_AFTER_TOO_BIG: Duration = Duration::from_secs(600);
/// How long segmentation stays off for an address after the device or driver refused it.
const RETRY_AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// Pause before sending again after `ENOBUFS`.
const NO_BUFFERS_PAUSE: Duration = Duration::from_millis(1);
/// How often a batch is tried again after `ENOBUFS`.
const NO_BUFFERS_RETRIES: u32 = 3;
/// Bound of the addresses remembered as refusing segmentation; beyond it the memory starts anew.
const MAX_REFUSING: usize = 1024;

/// Sockets that send one datagram, or one batch that the kernel cuts into datagrams.
pub trait SendDatagrams {
    /// Sends `contents`; with `segment_len` as a batch of segments of that many bytes.
    ///
    /// # Errors
    /// As `sendmsg(2)`; nothing of `contents` was sent.
    fn send(
        &mut self,
        destination: &Destination,
        contents: &[u8],
        segment_len: Option<usize>,
    ) -> io::Result<()>;

    /// Undoes what the socket's owner may have switched off for good after `EIO` or `EINVAL`.
    fn recover(&mut self);
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The queue is empty.
    Done,
    /// The socket to this address is not writable; the rest is still queued.
    Blocked(SocketAddr),
    /// The kernel had no buffers; the rest is still queued, try at this time (since boot).
    RetryAt(Duration),
}

/// Sends what is queued, remembering which addresses refuse segmentation.
#[derive(Debug)]
pub struct Flusher {
    segmentation: bool,
    /// Until when segmentation is off, by address.
    refusing: HashMap<SocketAddr, Duration>,
    /// How often the kernel had no buffers for the datagram that is sent ahead just now.
    ahead_no_buffers: u32,
    counters: FlushCounters,
    lost_sources: Vec<SocketAddr>,
    too_big: Vec<(SocketAddr, usize)>,
}

/// What became of one batch.
enum Sent {
    Whole,
    NotYet(Flushed),
}

impl Flusher {
    /// `segmentation` is whether batches may be handed to the kernel whole (GSO).
    #[must_use]
    pub fn new(segmentation: bool) -> Self {
        Self {
            segmentation,
            refusing: HashMap::new(),
            ahead_no_buffers: 0,
            counters: FlushCounters::default(),
            lost_sources: Vec::new(),
            too_big: Vec::new(),
        }
    }

    /// Sends batches, oldest first, until the queue is empty or the kernel takes no more.
    pub fn flush(
        &mut self,
        queue: &mut GsoQueue,
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> Flushed {
        while let Some(batch) = queue.front() {
            match self.send_batch(batch, sockets, now) {
                Sent::Whole => queue.pop_front(),
                Sent::NotYet(why) => return why,
            }
        }
        Flushed::Done
    }

    /// Sends one datagram ahead of everything queued.
    ///
    /// Anything but [`Flushed::Done`]: it is still the caller's, to be sent again. Failures that
    /// another attempt would not mend are counted drops.
    pub fn send_now(
        &mut self,
        destination: &Destination,
        datagram: &[u8],
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> Flushed {
        let mut result = self.call(sockets, destination, datagram, None);
        if result.as_ref().is_err_and(is_source_error) && destination.from.is_some() {
            self.lose_source(destination.to);
            let unpinned = Destination {
                from: None,
                ..*destination
            };
            result = self.call(sockets, &unpinned, datagram, None);
        }
        match result {
            Ok(()) => self.counters.segments[1] += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return self.block(destination.to);
            }
            Err(error) if is_no_buffers(&error) => {
                self.ahead_no_buffers += 1;
                if let Some(later) = self.put_off(self.ahead_no_buffers, now) {
                    return later;
                }
                self.counters.no_buffers += 1;
            }
            Err(_) => self.counters.failed += 1,
        }
        self.ahead_no_buffers = 0;
        Flushed::Done
    }

    /// What [`Flusher::send_now`] was to send again is given up.
    pub fn forget_ahead(&mut self) {
        self.ahead_no_buffers = 0;
    }

    /// Sends one datagram ahead of everything queued, to an address that has proved nothing: one
    /// attempt, and nothing is changed for anybody else if it fails, which is a counted drop.
    pub fn send_once(
        &mut self,
        destination: &Destination,
        datagram: &[u8],
        sockets: &mut impl SendDatagrams,
    ) {
        self.counters.calls += 1;
        match sockets.send(destination, datagram, None) {
            Ok(()) => self.counters.segments[1] += 1,
            Err(_) => self.counters.failed += 1,
        }
    }

    /// Addresses whose pinned source address turned out to be gone, since the last call.
    pub fn lost_sources(&mut self) -> impl Iterator<Item = SocketAddr> {
        self.lost_sources.drain(..)
    }

    /// Datagrams that the path refused for their length since the last call: address, bytes.
    pub fn too_big(&mut self) -> impl Iterator<Item = (SocketAddr, usize)> {
        self.too_big.drain(..)
    }

    /// Routes have changed: every address may take batches again, and is asked by the next one.
    pub fn forget_refusals(&mut self) {
        self.refusing.clear();
    }

    /// Whether batches are handed to the kernel whole, addresses that refuse it apart.
    #[must_use]
    pub fn segmentation(&self) -> bool {
        self.segmentation
    }

    /// How many addresses have segmentation switched off at the moment.
    #[must_use]
    pub fn refusing(&self) -> usize {
        self.refusing.len()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &FlushCounters {
        &self.counters
    }

    fn send_batch(
        &mut self,
        batch: &mut Batch,
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> Sent {
        while batch.is_whole() && self.may_segment(batch.destination.to, now) {
            let result = self.call(
                sockets,
                &batch.destination,
                batch.unsent(),
                Some(batch.segment_len()),
            );
            let Err(error) = result else {
                self.counters.segments[batch.segments()] += 1;
                return Sent::Whole;
            };
            match self.after_refused_batch(batch, &error, now) {
                Reaction::Again => {}
                Reaction::OneByOne => break,
                Reaction::Drop => {
                    self.counters.failed += batch.segments() as u64;
                    return Sent::Whole;
                }
                Reaction::Wait(why) => return Sent::NotYet(why),
                Reaction::NoBuffers => {
                    self.counters.no_buffers += batch.segments() as u64;
                    return Sent::Whole;
                }
            }
        }
        self.send_one_by_one(batch, sockets, now)
    }

    fn send_one_by_one(
        &mut self,
        batch: &mut Batch,
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> Sent {
        if batch.segments() > 1 {
            batch.split();
        }
        while !batch.first_segment().is_empty() {
            let result = self.call(sockets, &batch.destination, batch.first_segment(), None);
            match result.map_err(|error| self.after_refused_datagram(batch, &error, now)) {
                Ok(()) => self.counters.segments[1] += 1,
                Err(Reaction::Again) => continue,
                Err(Reaction::Wait(why)) => return Sent::NotYet(why),
                Err(Reaction::NoBuffers) => self.counters.no_buffers += 1,
                Err(Reaction::OneByOne) => {
                    self.counters.too_big += 1;
                    let refused = (batch.destination.to, batch.first_segment().len());
                    self.too_big.push(refused);
                }
                Err(Reaction::Drop) => self.counters.failed += 1,
            }
            batch.advance();
        }
        Sent::Whole
    }

    fn call(
        &mut self,
        sockets: &mut impl SendDatagrams,
        destination: &Destination,
        contents: &[u8],
        segment_len: Option<usize>,
    ) -> io::Result<()> {
        self.counters.calls += 1;
        let result = sockets.send(destination, contents, segment_len);
        if matches!(&result, Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL))) {
            sockets.recover();
        }
        result
    }

    fn may_segment(&mut self, to: SocketAddr, now: Duration) -> bool {
        if self.refusing.is_empty() || !self.segmentation {
            return self.segmentation;
        }
        match self.refusing.get(&to) {
            Some(&until) if now < until => false,
            Some(_) => {
                self.refusing.remove(&to);
                true
            }
            None => true,
        }
    }

    fn after_refused_batch(
        &mut self,
        batch: &mut Batch,
        error: &io::Error,
        now: Duration,
    ) -> Reaction {
        if let Some(reaction) = self.after_any_refusal(batch, error, now) {
            return reaction;
        }
        let pause = match error.raw_os_error() {
            Some(libc::EMSGSIZE) => RETRY_AFTER_TOO_BIG,
            Some(libc::EIO | libc::EINVAL) => RETRY_AFTER_REFUSAL,
            _ => return Reaction::Drop,
        };
        tracing::debug!(to = %batch.destination.to, %error, "Segmentation refused; sending one by one");
        self.counters.refused_batches += 1;
        if self.refusing.len() >= MAX_REFUSING {
            self.refusing.clear();
        }
        self.refusing.insert(batch.destination.to, now + pause);
        Reaction::OneByOne
    }

    fn after_refused_datagram(
        &mut self,
        batch: &mut Batch,
        error: &io::Error,
        now: Duration,
    ) -> Reaction {
        if let Some(reaction) = self.after_any_refusal(batch, error, now) {
            return reaction;
        }
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => Reaction::OneByOne,
            _ => Reaction::Drop,
        }
    }

    /// The reactions that do not depend on whether a batch or one datagram was refused.
    fn after_any_refusal(
        &mut self,
        batch: &mut Batch,
        error: &io::Error,
        now: Duration,
    ) -> Option<Reaction> {
        let to = batch.destination.to;
        if error.kind() == io::ErrorKind::WouldBlock {
            return Some(Reaction::Wait(self.block(to)));
        }
        if is_no_buffers(error) {
            let later = self.put_off(batch.count_no_buffers(), now);
            return Some(later.map_or(Reaction::NoBuffers, Reaction::Wait));
        }
        if batch.destination.from.is_some() && is_source_error(error) {
            batch.destination.from = None;
            self.lose_source(to);
            return Some(Reaction::Again);
        }
        None
    }

    fn block(&mut self, to: SocketAddr) -> Flushed {
        self.counters.blocked += 1;
        Flushed::Blocked(to)
    }

    /// When to send the same again after the kernel had no buffers for it so many times; `None`: no
    /// more.
    fn put_off(&mut self, times: u32, now: Duration) -> Option<Flushed> {
        let is_tried_again = times <= NO_BUFFERS_RETRIES;
        self.counters.put_off += u64::from(is_tried_again);
        is_tried_again.then_some(Flushed::RetryAt(now + NO_BUFFERS_PAUSE))
    }

    fn lose_source(&mut self, to: SocketAddr) {
        self.counters.lost_sources += 1;
        self.lost_sources.push(to);
    }
}

enum Reaction {
    /// The same contents again, now.
    Again,
    /// The segments of a batch alone; for one datagram: it was too long even so.
    OneByOne,
    Wait(Flushed),
    NoBuffers,
    Drop,
}

fn is_no_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Errors that a source address which is gone, or has no route, leads to.
fn is_source_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENETUNREACH | libc::EADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests;
