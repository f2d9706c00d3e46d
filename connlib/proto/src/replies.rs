//! Packets for the TUN that the node itself sends: ICMP errors, as many as the kernel would send.

use std::{collections::VecDeque, time::Duration};

/// Most that wait for [`crate::Node::poll_reply`].
const WAITING: usize = 16;
/// What the kernel has by default (`net.ipv4.icmp_msgs_per_sec`, `net.ipv4.icmp_msgs_burst`).
const PER_SECOND: u32 = 1000;
const BURST: u32 = 50;

const INTERVAL: Duration = Duration::from_micros(1_000_000 / PER_SECOND as u64);

#[derive(Debug, Default)]
pub(crate) struct Replies {
    waiting: VecDeque<Vec<u8>>,
    /// When none of the burst will be used up any more.
    idle_at: Duration,
}

impl Replies {
    /// Queues a packet that `reply` makes, unless there were too many lately.
    pub(crate) fn push(&mut self, now: Duration, reply: impl FnOnce() -> Option<Vec<u8>>) {
        let next = self.idle_at.max(now) + INTERVAL;
        if self.waiting.len() >= WAITING || next > now + INTERVAL * BURST {
            return;
        }
        if let Some(packet) = reply() {
            self.idle_at = next;
            self.waiting.push_back(packet);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
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
        let second = (1..=10_000).map(|n| made(start + INTERVAL * n / 10));
        assert_eq!(second.sum::<usize>(), 1000);
    }

    #[test]
    fn what_nobody_takes_does_not_pile_up() {
        let mut replies = Replies::default();
        for n in 0..100 {
            replies.push(Duration::from_secs(n), || Some(vec![0]));
        }
        assert_eq!(std::iter::from_fn(|| replies.pop()).count(), WAITING);
    }
}
