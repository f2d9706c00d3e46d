//! Moderates the wake-ups of a thread on which many busy streams move, as network cards do with interrupts.
//!
//! Every packet that arrives wakes a waiting thread up, although the others will have bytes a moment later. While four
//! or more streams are busy, the thread sleeps for half a millisecond before it waits for events: then each stream has
//! more to move at once. This delays the other connections of the thread by as much, but never a few streams alone,
//! whose rate a pause would lower.

use std::{
    cell::Cell,
    thread::sleep,
    time::{Duration, Instant},
};

/// Time after which busy streams are counted again.
const WINDOW: Duration = Duration::from_millis(4);
/// Bytes within a window that make a stream busy: a quarter of a gigabit per second.
const BUSY: u64 = 128 << 10;
/// Fewest busy streams for which the thread sleeps.
const MANY: u32 = 4;
/// How long the thread sleeps. A longer pause leaves the senders without acknowledgements.
const PAUSE: Duration = Duration::from_micros(500);

/// Sleeps if many streams have been busy on this thread. Call it each time before the thread waits for events, and only
/// where one thread relays all connections: else others could take over meanwhile.
pub fn moderate_wakeups() {
    let (next, pause) = THREAD.get().before_wait(Instant::now());
    THREAD.set(next);
    if let Some(pause) = pause {
        sleep(pause);
    }
}

thread_local! {
    static THREAD: Cell<Moderation> = const { Cell::new(Moderation::new()) };
}

/// The streams that move on one thread.
#[derive(Clone, Copy, Debug)]
struct Moderation {
    /// Number of the window; each begins when the thread waits.
    window: u64,
    began: Option<Instant>,
    busy: u32,
    /// Whether many streams were busy in the window before.
    has_many: bool,
}

/// Bytes of a stream in the present window.
#[derive(Debug, Default)]
pub(super) struct Load {
    window: u64,
    bytes: u64,
}

impl Load {
    /// Counts bytes that the stream has moved on this thread.
    pub(super) fn count(&mut self, bytes: u64) {
        THREAD.set(THREAD.get().counted(self, bytes));
    }
}

impl Moderation {
    const fn new() -> Self {
        Self {
            window: 0,
            began: None,
            busy: 0,
            has_many: false,
        }
    }

    fn counted(mut self, stream: &mut Load, bytes: u64) -> Self {
        if stream.window != self.window {
            *stream = Load {
                window: self.window,
                bytes: 0,
            };
        }
        let was_busy = stream.bytes >= BUSY;
        stream.bytes += bytes;
        if !was_busy && stream.bytes >= BUSY {
            self.busy += 1;
        }
        self
    }

    /// Returns how long the thread is to sleep before it waits.
    fn before_wait(mut self, now: Instant) -> (Self, Option<Duration>) {
        if self.began.is_none_or(|began| now - began >= WINDOW) {
            self = Self {
                window: self.window + 1,
                began: Some(now),
                busy: 0,
                has_many: self.busy >= MANY,
            };
        }
        (self, self.has_many.then_some(PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves bytes of some streams in each of three windows, and returns the pauses before the waits that end them.
    fn pauses(streams: usize, bytes: u64) -> [bool; 3] {
        let mut streams: Vec<Load> = (0..streams).map(|_| Load::default()).collect();
        let mut thread = Moderation::new();
        let mut now = Instant::now();
        (thread, _) = thread.before_wait(now);
        std::array::from_fn(|_| {
            for stream in &mut streams {
                thread = thread.counted(stream, bytes / 2);
                thread = thread.counted(stream, bytes - bytes / 2);
            }
            now += WINDOW;
            let pause;
            (thread, pause) = thread.before_wait(now);
            pause.is_some()
        })
    }

    #[test]
    fn only_many_busy_streams_make_the_thread_sleep() {
        assert_eq!(pauses(MANY as usize, BUSY), [true; 3]);
        assert_eq!(pauses(MANY as usize - 1, 100 * BUSY), [false; 3]);
        assert_eq!(pauses(1_000, BUSY - 1), [false; 3]);
    }

    #[test]
    fn a_window_without_busy_streams_ends_the_pauses() {
        let mut thread = Moderation::new();
        let start = Instant::now();
        (thread, _) = thread.before_wait(start);
        for _ in 0..MANY {
            thread = thread.counted(&mut Load::default(), BUSY);
        }
        let mut slept = Vec::new();
        for waits in 1..=16 {
            let pause;
            (thread, pause) = thread.before_wait(start + waits * WINDOW / 4);
            slept.push(pause.is_some());
        }
        let expected = [[false; 3].as_slice(), &[true; 4], &[false; 9]].concat();
        assert_eq!(slept, expected);
    }
}
