//! ICMP errors that the node itself sends to the TUN, at the rate limit of the kernel.

use std::{collections::VecDeque, time::Duration};

use convoy_types::{Rate, TokenBucket};

/// Most errors that wait for [`crate::Node::poll_reply`].
const WAITING: usize = 16;
/// The kernel's default rate limit (`net.ipv4.icmp_msgs_per_sec`, `net.ipv4.icmp_msgs_burst`).
const RATE: Rate = Rate::per_second(1000, 50);

#[derive(Debug, Default)]
pub(crate) struct Replies {
    waiting: VecDeque<Vec<u8>>,
    bucket: TokenBucket,
}

impl Replies {
    /// Queues the packet that `reply` makes, unless the rate limit or the bound of the queue is reached.
    pub(crate) fn push(&mut self, now: Duration, reply: impl FnOnce() -> Option<Vec<u8>>) {
        if self.waiting.len() >= WAITING || !self.bucket.has_token(RATE, now) {
            return;
        }
        if let Some(packet) = reply() {
            self.bucket.take(RATE, now);
            self.waiting.push_back(packet);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    /// Drops everything; returns the number of packets dropped.
    pub(crate) fn clear(&mut self) -> usize {
        self.waiting.drain(..).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_fifty_at_once_and_then_a_thousand_a_second() {
        let mut replies = Replies::default();
        let mut made = |now: Duration| {
            replies.push(now, || Some(vec![0]));
            usize::from(replies.pop().is_some())
        };
        let start = Duration::from_secs(100);
        assert_eq!((0..200).map(|_| made(start)).sum::<usize>(), 50);
        let second = (1..=10_000).map(|n| made(start + Duration::from_micros(100) * n));
        assert_eq!(second.sum::<usize>(), 1000);
    }

    #[test]
    fn a_packet_without_a_reply_costs_no_token() {
        let mut replies = Replies::default();
        let start = Duration::from_secs(100);
        (0..1000).for_each(|_| replies.push(start, || None));
        replies.push(start, || Some(vec![0]));
        assert!(replies.pop().is_some());
    }

    #[test]
    fn replies_that_nobody_polls_do_not_pile_up() {
        let mut replies = Replies::default();
        for n in 0..100 {
            replies.push(Duration::from_secs(n), || Some(vec![0]));
        }
        assert_eq!(std::iter::from_fn(|| replies.pop()).count(), WAITING);
    }
}
