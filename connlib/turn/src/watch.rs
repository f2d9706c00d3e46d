//! The watch for a server that has gone, or has forgotten the allocation.
//!
//! A WireGuard peer answers data within ten seconds, and mostly at once. If nothing authentic has arrived for a while
//! since data was sent, the server is asked whether it has the allocation. If it has, the peer is silent, and the server
//! is asked ever more rarely until something arrives.

use std::time::Duration;

use turn_client_proto::stun::types::message::TransactionId;

use crate::{credentials::Credentials, refresh::Refresh, request::Progress, server::Transport};

/// Silence after which the server is asked; doubled up to [`LONGEST_SILENCE`] each time that it answers.
const SILENCE: Duration = Duration::from_secs(4);
/// Longest silence before the server is asked.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);
/// The allocation that a request names is none of the server's (RFC 8656 §7.2).
const ALLOCATION_MISMATCH: u16 = 437;

#[derive(Debug)]
pub(crate) struct Watch {
    /// Since when data has been sent without anything arriving.
    unanswered_since: Option<Duration>,
    /// How long that may last.
    silence: Duration,
    check: Option<Box<Refresh>>,
}

/// A finding about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be as it was.
    Undecided,
    /// It does not answer.
    Gone,
    /// It answers, and has no such allocation.
    Forgetful,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            unanswered_since: None,
            silence: SILENCE,
            check: None,
        }
    }
}

impl Watch {
    /// Notes that data has been sent; returns whether [`Self::due`] has changed.
    #[inline]
    pub(crate) fn note_sent(&mut self, now: Duration) -> bool {
        let is_first = self.unanswered_since.is_none();
        self.unanswered_since.get_or_insert(now);
        is_first
    }

    /// Notes that something authentic has arrived.
    #[inline]
    pub(crate) fn note_received(&mut self) {
        self.unanswered_since = None;
        self.silence = SILENCE;
        if self.check.is_some() {
            self.check = None;
        }
    }

    /// Forgets what was sent to the former allocation.
    pub(crate) fn begin_anew(&mut self) {
        self.unanswered_since = None;
        self.check = None;
    }

    /// Returns when to call [`Self::poll`].
    pub(crate) fn due(&self) -> Option<Duration> {
        let check = self.check.as_ref().map(|it| it.due());
        check.or_else(|| Some(self.unanswered_since? + self.silence))
    }

    /// Handles due timers; returns the verdict, and a request to send if there is one.
    pub(crate) fn poll(
        &mut self,
        credentials: &Credentials,
        transport: Transport,
        now: Duration,
    ) -> (Verdict, Option<Vec<u8>>) {
        if self.due().is_none_or(|due| now < due) {
            return (Verdict::Undecided, None);
        }
        if self.check.is_none() {
            let check = Refresh::check(credentials, transport, now);
            self.check = check.map(Box::new);
        }
        match self.check.as_mut().map(|it| it.poll(now)) {
            Some((Progress::Waiting, request)) => (Verdict::Undecided, request),
            _ => (Verdict::Gone, None),
        }
    }

    /// Returns whether a check is sent under this transaction.
    pub(crate) fn has_asked(&self, transaction: TransactionId) -> bool {
        let check = self.check.as_ref();
        check.is_some_and(|it| it.has_transaction(transaction))
    }

    /// Takes a message from the server; `None` if it does not answer a check.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: Duration) -> Option<Verdict> {
        Some(match self.check.as_mut()?.handle(bytes, now)? {
            Progress::Waiting => Verdict::Undecided,
            Progress::Refused(ALLOCATION_MISMATCH) => Verdict::Forgetful,
            Progress::Silent => Verdict::Gone,
            Progress::Done | Progress::Refused(_) => {
                self.begin_anew();
                self.silence = (self.silence * 2).min(LONGEST_SILENCE);
                Verdict::Undecided
            }
        })
    }
}
