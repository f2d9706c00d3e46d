//! Sends the queue's batches, and reacts when the kernel refuses one.
//!
//! Pure over [`SendDatagrams`]: the real sockets and a test's failing ones run the same code.
//!
//! | the kernel says | reaction |
//! |---|---|
//! | `EAGAIN` | [`Flushed::Blocked`]: the rest stays queued |
//! | `ENOBUFS` | [`Flushed::RetryAt`] 1 ms later, three times, then a counted drop; nothing more joins the batch |
//! | `EINVAL`, `ENETUNREACH`, `EADDRNOTAVAIL` with a pinned source | forget the source, send the same batch again |
//! | `EIO`, `EINVAL` on a batch | send its datagrams one by one, segmentation off for that address for a minute |
//! | `EMSGSIZE` on a batch | send its datagrams one by one, segmentation off for that address for five seconds, doubled each time up to five minutes |
//! | anything else | a counted drop of that datagram or batch |

use std::{collections::HashMap, io, net::SocketAddr, time::Duration};

use convoy_types::Destination;

pub use counters::FlushCounters;

use crate::queue::{Batch, GsoQueue};

mod counters;

/// How long segmentation stays off for an address after its first `EMSGSIZE`. Short, as the ICMP
/// message behind it may be forged.
const RETRY_AFTER_TOO_BIG: Duration = Duration::from_secs(5);
/// Longest time for which segmentation stays off after `EMSGSIZE` (RFC 8201 §5.3 waits as long).
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long a past refusal doubles the next pause: as long as the kernel remembers a path MTU.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How long segmentation stays off for an address after the device or driver refused it.
const RETRY_AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// Pause before sending again after `ENOBUFS`.
const NO_BUFFERS_PAUSE: Duration = Duration::from_millis(1);
/// Retries of a batch, or of a datagram sent ahead, after `ENOBUFS`.
const NO_BUFFERS_RETRIES: u32 = 3;
/// Most addresses remembered because they refused segmentation; at the bound all are forgotten.
const MAX_REFUSING: usize = 1024;

/// Sockets that send one datagram, or one batch that the kernel cuts into datagrams.
pub trait SendDatagrams {
    /// Sends `contents`: with a `segment_len`, in bytes, as a batch of segments of that length, of
    /// which the last may be shorter; else as one datagram.
    ///
    /// # Errors
    /// As `sendmsg(2)`; then nothing of `contents` was sent.
    fn send(
        &mut self,
        destination: &Destination,
        contents: &[u8],
        segment_len: Option<usize>,
    ) -> io::Result<()>;

    /// Makes the kernel forget the path MTU to `to` that it has learnt from ICMP messages, if possible.
    fn forget_learnt_mtu(&mut self, to: SocketAddr);

    /// Restores features that the sockets may have turned off for good after `EIO` or `EINVAL`.
    fn recover(&mut self);
}

/// The outcome of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The queue is empty.
    Done,
    /// The socket to this address is not writable; the rest is still queued.
    Blocked(SocketAddr),
    /// The kernel lacked buffers; the rest is still queued. Retry at this time (since boot).
    RetryAt(Duration),
}

/// Sends queued batches, and remembers which addresses refuse segmentation.
#[derive(Debug)]
pub struct Flusher {
    segmentation: bool,
    /// Addresses that have refused segmentation.
    refusing: HashMap<SocketAddr, Refusal>,
    /// `ENOBUFS` errors so far for the datagram that [`Flusher::send_now`] is sending, by address family.
    ahead_no_buffers: [u32; 2],
    counters: FlushCounters,
    lost_sources: Vec<SocketAddr>,
    too_big: Vec<(SocketAddr, usize)>,
}

/// The last time that an address refused segmentation.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// When segmentation is tried again (time since boot).
    until: Duration,
    /// The pause, if the path was too narrow; zero after any other refusal.
    too_big: Duration,
    /// Whether segmentation has been tried again since.
    is_over: bool,
}

/// Whether a batch is done with, and leaves the queue.
enum BatchOutcome {
    /// Each of its datagrams was sent, or dropped and counted.
    Finished,
    /// The rest of it stays queued.
    Paused(Flushed),
}

/// The reaction to a batch or a datagram that the kernel has refused.
enum Reaction {
    /// Send the rest of the batch again, now.
    Resend,
    /// Keep the rest queued.
    Pause(Flushed),
    /// Drop what was refused, and count it here.
    Drop(Loss),
}

/// The counter for a dropped datagram.
enum Loss {
    Refused,
    TooBig,
    NoBuffers,
}

impl Flusher {
    /// `segmentation`: whether the kernel may be given whole batches (GSO).
    #[must_use]
    pub fn new(segmentation: bool) -> Self {
        Self {
            segmentation,
            refusing: HashMap::new(),
            ahead_no_buffers: [0; 2],
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
                BatchOutcome::Finished => queue.pop_front(),
                BatchOutcome::Paused(why) => return why,
            }
        }
        Flushed::Done
    }

    /// Sends one datagram ahead of everything queued.
    ///
    /// Unless this returns [`Flushed::Done`], the caller keeps the datagram and sends it again.
    /// A failure that a retry cannot mend is a counted drop.
    pub fn send_now(
        &mut self,
        destination: &Destination,
        datagram: &[u8],
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> Flushed {
        let family = usize::from(destination.to.is_ipv6());
        let mut result = self.call(sockets, destination, datagram, None);
        if result.as_ref().is_err_and(is_source_error) && destination.source.is_some() {
            self.lose_source(destination.to);
            let unpinned = Destination {
                source: None,
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
                self.ahead_no_buffers[family] += 1;
                if let Some(later) = self.put_off(self.ahead_no_buffers[family], now) {
                    return later;
                }
                self.counters.no_buffers += 1;
            }
            Err(_) => self.counters.failed += 1,
        }
        self.ahead_no_buffers[family] = 0;
        Flushed::Done
    }

    /// Call when giving up datagrams that [`Flusher::send_now`] did not finish: the next ones get all
    /// their retries.
    pub fn forget_ahead(&mut self) {
        self.ahead_no_buffers = [0; 2];
    }

    /// Sends one datagram ahead of everything queued, in one attempt: a cookie reply, whose receiver has
    /// not proved its address yet. A failure is a counted drop and affects no other datagram.
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

    /// Destinations whose pinned source address turned out to be gone since the last call.
    pub fn lost_sources(&mut self) -> impl Iterator<Item = SocketAddr> {
        self.lost_sources.drain(..)
    }

    /// Destinations and lengths, in bytes, of the datagrams that were too long for the path since the
    /// last call.
    pub fn too_big(&mut self) -> impl Iterator<Item = (SocketAddr, usize)> {
        self.too_big.drain(..)
    }

    /// Tries segmentation again for every address. Call when routes have changed.
    pub fn forget_refusals(&mut self) {
        self.refusing.clear();
    }

    /// Returns whether the kernel may be given whole batches (GSO); addresses that refuse them are exempt.
    #[must_use]
    pub fn segmentation(&self) -> bool {
        self.segmentation
    }

    /// The number of addresses for which segmentation is off until it is tried again.
    #[must_use]
    pub fn refusing(&self) -> usize {
        let is_off = |refusal: &&Refusal| !refusal.is_over;
        self.refusing.values().filter(is_off).count()
    }

    /// The counts since the start.
    #[must_use]
    pub fn counters(&self) -> &FlushCounters {
        &self.counters
    }

    fn send_batch(
        &mut self,
        batch: &mut Batch,
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> BatchOutcome {
        while batch.is_whole() && self.may_segment(batch.destination.to, sockets, now) {
            let result = self.call(
                sockets,
                &batch.destination,
                batch.unsent(),
                Some(batch.segment_len()),
            );
            let Err(error) = result else {
                self.counters.segments[batch.segments()] += 1;
                return BatchOutcome::Finished;
            };
            match self.after_refused_batch(batch, &error, now) {
                Reaction::Resend => {}
                Reaction::Pause(why) => return BatchOutcome::Paused(why),
                Reaction::Drop(loss) => {
                    self.count_lost(&loss, batch.segments());
                    return BatchOutcome::Finished;
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
    ) -> BatchOutcome {
        if batch.segments() > 1 {
            batch.split();
        }
        while !batch.first_segment().is_empty() {
            let result = self.call(sockets, &batch.destination, batch.first_segment(), None);
            match result.map_err(|error| self.after_refused_datagram(batch, &error, now)) {
                Ok(()) => self.counters.segments[1] += 1,
                Err(Reaction::Resend) => continue,
                Err(Reaction::Pause(why)) => return BatchOutcome::Paused(why),
                Err(Reaction::Drop(loss)) => self.count_lost(&loss, 1),
            }
            batch.advance();
        }
        BatchOutcome::Finished
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

    fn may_segment(
        &mut self,
        to: SocketAddr,
        sockets: &mut impl SendDatagrams,
        now: Duration,
    ) -> bool {
        if self.refusing.is_empty() || !self.segmentation {
            return self.segmentation;
        }
        match self.refusing.get_mut(&to) {
            Some(refusal) if now < refusal.until => false,
            Some(refusal) if !refusal.is_over => {
                refusal.is_over = true;
                if !refusal.too_big.is_zero() {
                    sockets.forget_learnt_mtu(to);
                }
                true
            }
            _ => true,
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
        let to = batch.destination.to;
        let (pause, too_big) = match error.raw_os_error() {
            Some(libc::EMSGSIZE) => {
                let pause = self.pause_after_too_big(to, now);
                (pause, pause)
            }
            Some(libc::EIO | libc::EINVAL) => (RETRY_AFTER_REFUSAL, Duration::ZERO),
            _ => return Reaction::Drop(Loss::Refused),
        };
        tracing::debug!(%to, %error, ?pause, "Segmentation refused; sending datagrams one by one");
        self.counters.refused_batches += 1;
        if self.refusing.len() >= MAX_REFUSING {
            self.refusing.clear();
        }
        let refusal = Refusal {
            until: now + pause,
            too_big,
            is_over: false,
        };
        self.refusing.insert(to, refusal);
        batch.split();
        Reaction::Resend
    }

    /// Doubles with each refusal: on a path that is really narrow, every retry costs a refused call.
    fn pause_after_too_big(&self, to: SocketAddr, now: Duration) -> Duration {
        let is_recent = |refusal: &&Refusal| now < refusal.until + REMEMBERED;
        let last = self.refusing.get(&to).filter(is_recent);
        let doubled = last.map_or(Duration::ZERO, |refusal| 2 * refusal.too_big);
        doubled.clamp(RETRY_AFTER_TOO_BIG, LONGEST_PAUSE)
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
        if error.raw_os_error() != Some(libc::EMSGSIZE) {
            return Reaction::Drop(Loss::Refused);
        }
        self.too_big
            .push((batch.destination.to, batch.first_segment().len()));
        Reaction::Drop(Loss::TooBig)
    }

    /// The reactions that are the same for a batch and for one datagram.
    fn after_any_refusal(
        &mut self,
        batch: &mut Batch,
        error: &io::Error,
        now: Duration,
    ) -> Option<Reaction> {
        let to = batch.destination.to;
        if error.kind() == io::ErrorKind::WouldBlock {
            return Some(Reaction::Pause(self.block(to)));
        }
        if is_no_buffers(error) {
            let later = self.put_off(batch.count_no_buffers(), now);
            return Some(later.map_or(Reaction::Drop(Loss::NoBuffers), Reaction::Pause));
        }
        if batch.destination.source.is_some() && is_source_error(error) {
            batch.destination.source = None;
            self.lose_source(to);
            return Some(Reaction::Resend);
        }
        None
    }

    fn block(&mut self, to: SocketAddr) -> Flushed {
        self.counters.blocked += 1;
        Flushed::Blocked(to)
    }

    /// Returns when to retry after `times` `ENOBUFS` errors in a row; `None` if the retries are used up.
    fn put_off(&mut self, times: u32, now: Duration) -> Option<Flushed> {
        let is_retried = times <= NO_BUFFERS_RETRIES;
        self.counters.put_off += u64::from(is_retried);
        is_retried.then_some(Flushed::RetryAt(now + NO_BUFFERS_PAUSE))
    }

    fn lose_source(&mut self, to: SocketAddr) {
        self.counters.lost_sources += 1;
        self.lost_sources.push(to);
    }

    fn count_lost(&mut self, loss: &Loss, datagrams: usize) {
        let counter = match loss {
            Loss::Refused => &mut self.counters.failed,
            Loss::TooBig => &mut self.counters.too_big,
            Loss::NoBuffers => &mut self.counters.no_buffers,
        };
        *counter += datagrams as u64;
    }
}

fn is_no_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Returns whether the error is one that a source address which is gone, or has no route, causes.
fn is_source_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENETUNREACH | libc::EADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests;
