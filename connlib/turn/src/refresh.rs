//! A REFRESH request of our own, beside those of the library: it checks or releases an allocation.
//!
//! The library refreshes only allocations that it has made, and only when they are about to expire. A process that was
//! killed leaves one behind, and until it has expired, the server answers 437 to the same address and port. And a
//! server that has gone is to be noticed long before that.

use std::time::Duration;

use turn_client_proto::{
    stun::{
        auth::{Feature, LongTermClientAuth, LongTermClientValidation},
        types::attribute::ErrorCode,
        types::message::{IntegrityAlgorithm, Message, MessageWriteVec, TransactionId},
        types::prelude::{MessageWrite, MessageWriteExt},
    },
    types::{attribute::Lifetime, message::REFRESH},
};

use crate::{credentials::Credentials, server::Transport};

/// Lifetime in seconds that a check asks for: as long as the library does, which relies on it.
const LIFETIME: u32 = 1800;
/// Most requests with other nonces.
const MAX_NONCES: u32 = 3;

/// A request, until an answer to it has arrived.
pub(crate) struct Refresh {
    auth: LongTermClientAuth,
    lifetime: u32,
    schedule: Schedule,
    request: Vec<u8>,
    transaction: TransactionId,
    attempts: u32,
    nonces: u32,
    due: Duration,
}

/// The times at which a request is sent.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    pause: Duration,
    /// The factor by which the pause grows after each attempt.
    growth: u32,
    attempts: u32,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for an answer.
    Waiting,
    /// The server has done it.
    Done,
    /// The server refuses it: the STUN error code.
    Refused(u16),
    /// The server does not answer.
    Silent,
}

impl Refresh {
    /// Makes a request that ends whatever allocation this address has; `None` if no request can be made.
    pub(crate) fn release(credentials: &Credentials, now: Duration) -> Option<Self> {
        let schedule = Schedule {
            pause: Duration::from_millis(500),
            growth: 2,
            attempts: 4,
        };
        Self::new(credentials, 0, schedule, now)
    }

    /// Makes a request that the server grants only if it has the allocation; `None` if no request can be made.
    ///
    /// Eleven requests in 5.5 seconds: if a fifth of all datagrams is lost each way, one check in 70,000 fails. A
    /// stream repeats lost segments by itself, but ever more slowly.
    pub(crate) fn check(
        credentials: &Credentials,
        transport: Transport,
        now: Duration,
    ) -> Option<Self> {
        let (pause, attempts) = match transport {
            Transport::Udp => (Duration::from_millis(500), 11),
            Transport::Stream => (Duration::from_secs(15), 1),
        };
        let schedule = Schedule {
            pause,
            growth: 1,
            attempts,
        };
        Self::new(credentials, LIFETIME, schedule, now)
    }

    fn new(
        credentials: &Credentials,
        lifetime: u32,
        schedule: Schedule,
        now: Duration,
    ) -> Option<Self> {
        let mut auth = LongTermClientAuth::new();
        auth.set_credentials(credentials.for_library().into());
        auth.set_supported_integrity(IntegrityAlgorithm::Sha1);
        auth.set_anonymous_username(Feature::Auto);
        let (request, transaction) = refresh(&mut auth, lifetime)?;
        Some(Self {
            auth,
            lifetime,
            schedule,
            request,
            transaction,
            attempts: 0,
            nonces: 0,
            due: now,
        })
    }

    /// Returns the request when it is due, and says when there is nothing left to wait for.
    pub(crate) fn poll(&mut self, now: Duration) -> (Progress, Option<Vec<u8>>) {
        if now < self.due {
            return (Progress::Waiting, None);
        }
        let Schedule {
            pause,
            growth,
            attempts,
        } = self.schedule;
        if self.attempts == attempts {
            return (Progress::Silent, None);
        }
        self.due = now + pause * growth.pow(self.attempts);
        self.attempts += 1;
        (Progress::Waiting, Some(self.request.clone()))
    }

    /// The time of the next [`Self::poll`].
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Takes a message from the server; `None` if it answers another request.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: Duration) -> Option<Progress> {
        let message = Message::from_bytes(bytes).ok()?;
        if !message.is_response() || message.transaction_id() != self.transaction {
            return None;
        }
        Some(match self.auth.validate_incoming_message(&message) {
            Ok(LongTermClientValidation::Validated(_)) => {
                let error = message.attribute::<ErrorCode>();
                error.map_or(Progress::Done, |error| Progress::Refused(error.code()))
            }
            Ok(LongTermClientValidation::ResendRequest(_)) if self.nonces < MAX_NONCES => {
                let Some((request, transaction)) = refresh(&mut self.auth, self.lifetime) else {
                    return Some(Progress::Silent);
                };
                (self.request, self.transaction) = (request, transaction);
                (self.attempts, self.due) = (0, now);
                self.nonces += 1;
                Progress::Waiting
            }
            // Forged, or refused: the request is repeated, and then given up.
            _ => Progress::Waiting,
        })
    }
}

impl std::fmt::Debug for Refresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refresh")
            .field("lifetime", &self.lifetime)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

fn refresh(auth: &mut LongTermClientAuth, lifetime: u32) -> Option<(Vec<u8>, TransactionId)> {
    let mut request = Message::builder_request(REFRESH, MessageWriteVec::new());
    let transaction = request.transaction_id();
    request.add_attribute(&Lifetime::new(lifetime)).ok()?;
    let request = auth.sign_outgoing_message(request).ok()?;
    Some((request.finish(), transaction))
}
