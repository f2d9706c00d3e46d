//! When a flow of datagrams ends.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// A flow ends after this time without datagrams, as long as the target has answered nothing.
const UNANSWERED: Duration = Duration::from_secs(30);
/// The same once it has.
const ANSWERED: Duration = Duration::from_secs(180);
/// How long a client waits after a failure before its next datagram is another attempt.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// When a flow ends, unless more of its datagrams come.
#[derive(Debug)]
pub(crate) struct Expiry {
    begun: Instant,
    /// Milliseconds from the beginning to the last datagram.
    last: AtomicU64,
    is_answered: AtomicBool,
}

impl Expiry {
    /// A flow that begins now.
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
        }
    }

    /// Notes a datagram.
    pub(crate) fn touch(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        self.last.store(now, Ordering::Relaxed);
    }

    /// Notes an answer.
    pub(crate) fn answer(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
        self.touch();
    }

    /// Waits until the flow ends. Datagrams put that off without a timer of their own, which would cost more than to
    /// send one.
    pub(crate) async fn reached(&self) {
        loop {
            let at = self.at();
            if at <= Instant::now() {
                return;
            }
            sleep_until(at).await;
        }
    }

    /// When it ends, as far as is known now.
    fn at(&self) -> Instant {
        let idle = match self.is_answered.load(Ordering::Relaxed) {
            true => ANSWERED,
            false => UNANSWERED,
        };
        self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed)) + idle
    }
}
