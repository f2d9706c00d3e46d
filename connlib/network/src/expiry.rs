//! When a flow of datagrams ends.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// A flow ends after this time without datagrams, as long as it is one question and its answers at most.
const ONCE: Duration = Duration::from_secs(30);
/// The same of a stream (RFC 4787, REQ-5: at least two minutes).
const STREAM: Duration = Duration::from_secs(180);
/// An association of SOCKS5: some clients never close its connection.
const ASSOCIATION: Duration = STREAM;
/// A flow of echo requests (RFC 5508, REQ-2: at least one minute).
const ECHOES: Duration = Duration::from_secs(60);
/// Answers that come later than this after the flow's beginning are a stream's, as in conntrack.
const BURST: u64 = 2_000;
/// Time after a failure before a client's next datagram counts as another attempt.
pub const RETRY: Duration = Duration::from_secs(1);

/// Nothing was answered; something was; and the exchange went on after that.
const UNANSWERED: u8 = 0;
const ANSWERED: u8 = 1;
const LASTING: u8 = 2;

/// Schedule for the end of an idle flow.
#[derive(Debug)]
pub struct Expiry {
    begun: Instant,
    once: Duration,
    stream: Duration,
    /// Milliseconds from the beginning to the last datagram.
    last: AtomicU64,
    progress: AtomicU8,
    is_replaced: AtomicBool,
    replaced: Notify,
}

impl Expiry {
    /// Begins a flow of datagrams now.
    pub fn of_datagrams() -> Self {
        Self::with(ONCE, STREAM)
    }

    /// Begins an association of SOCKS5 now, before its first datagram.
    pub fn of_association() -> Self {
        Self::with(ASSOCIATION, ASSOCIATION)
    }

    /// Begins a flow of echo requests now.
    pub fn of_echoes() -> Self {
        Self::with(ECHOES, ECHOES)
    }

    fn with(once: Duration, stream: Duration) -> Self {
        Self {
            begun: Instant::now(),
            once,
            stream,
            last: AtomicU64::new(0),
            progress: AtomicU8::new(UNANSWERED),
            is_replaced: AtomicBool::new(false),
            replaced: Notify::new(),
        }
    }

    /// Records a question: datagrams from the side that began the flow.
    pub fn question(&self) {
        self.touch();
        if self.progress() == ANSWERED {
            self.progress.store(LASTING, Ordering::Relaxed);
        }
    }

    /// Records an answer.
    pub fn answer(&self) {
        let now = self.touch();
        match self.progress() {
            UNANSWERED => self.progress.store(ANSWERED, Ordering::Relaxed),
            ANSWERED if now > BURST => self.progress.store(LASTING, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Ends the flow at once, as another one takes its place.
    pub fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
        self.replaced.notify_one();
    }

    /// Returns whether another flow has taken its place.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Milliseconds from the beginning to the last datagram.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Waits until the flow ends. Datagrams put that off without a timer of their own, which would cost more than to
    /// send one. For one task.
    pub async fn reached(&self) {
        loop {
            let at = self.at();
            if at <= Instant::now() || self.is_replaced() {
                return;
            }
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.replaced.notified() => {}
            }
        }
    }

    fn touch(&self) -> u64 {
        let now = self.begun.elapsed().as_millis() as u64;
        self.last.store(now, Ordering::Relaxed);
        now
    }

    fn progress(&self) -> u8 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Returns the time at which it ends, as far as is known now.
    fn at(&self) -> Instant {
        let idle = match self.progress() {
            LASTING => self.stream,
            _ => self.once,
        };
        self.begun + Duration::from_millis(self.last()) + idle
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Seconds that a flow lasts after these events, each a second after the one before.
    async fn lasts(events: &str) -> u64 {
        let expiry = Expiry::of_datagrams();
        for event in events.chars() {
            match event {
                'q' => expiry.question(),
                'a' => expiry.answer(),
                _ => advance(Duration::from_secs(1)).await,
            }
        }
        let before = Instant::now();
        expiry.reached().await;
        before.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_and_its_answers_are_short_and_whatever_goes_on_is_a_stream() {
        for (events, seconds) in [
            ("q", 30),
            ("qqq", 30),
            ("qa", 30),
            ("q.....a", 30),
            ("qq.aa", 30),
            ("q.aaa", 30),
            ("qaq", 180),
            ("qaqa", 180),
            ("qa...a", 180),
            ("qa....................q", 180),
        ] {
            assert_eq!(lasts(events).await, seconds, "{events}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_that_is_replaced_ends_at_once() {
        let expiry = Expiry::of_datagrams();
        expiry.question();
        expiry.replace();
        let before = Instant::now();
        expiry.reached().await;
        assert!(expiry.is_replaced() && before.elapsed() == Duration::ZERO);
    }
}
