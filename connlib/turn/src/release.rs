//! The release of an allocation that this address has left on the server.
//!
//! The library refreshes only allocations that it has made; a process that was killed leaves one behind, and
//! until it has expired, the server answers 437 to the same address and port.

use std::time::Duration;

use turn_client_proto::{
    stun::{
        auth::{Feature, LongTermClientAuth, LongTermClientValidation},
        types::message::{IntegrityAlgorithm, Message, MessageWriteVec, TransactionId},
        types::prelude::{MessageWrite, MessageWriteExt},
    },
    types::{attribute::Lifetime, message::REFRESH},
};

use crate::credentials::Credentials;

/// Pause before the request is sent again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Number of times that a request is sent.
const ATTEMPTS: u32 = 4;
/// Most requests with other nonces.
const MAX_NONCES: u32 = 3;

/// A REFRESH request with a lifetime of zero, until an answer to it has arrived.
pub(crate) struct Release {
    auth: LongTermClientAuth,
    request: Vec<u8>,
    transaction: TransactionId,
    attempts: u32,
    nonces: u32,
    due: Duration,
}

/// How far a release is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for an answer.
    Waiting,
    /// The server has answered, or answers no longer.
    Done,
}

impl Release {
    /// Begins one; `None` if no request can be made.
    pub(crate) fn begin(credentials: &Credentials, now: Duration) -> Option<Self> {
        let mut auth = LongTermClientAuth::new();
        auth.set_credentials(credentials.for_library().into());
        auth.set_supported_integrity(IntegrityAlgorithm::Sha1);
        auth.set_anonymous_username(Feature::Auto);
        let (request, transaction) = refresh(&mut auth)?;
        Some(Self {
            auth,
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
        if self.attempts == ATTEMPTS {
            return (Progress::Done, None);
        }
        self.due = now + FIRST_PAUSE * (1 << self.attempts);
        self.attempts += 1;
        (Progress::Waiting, Some(self.request.clone()))
    }

    /// The time of the next [`Self::poll`].
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Takes a message from the server.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: Duration) -> Progress {
        let Ok(message) = Message::from_bytes(bytes) else {
            return Progress::Waiting;
        };
        if !message.is_response() || message.transaction_id() != self.transaction {
            return Progress::Waiting;
        }
        match self.auth.validate_incoming_message(&message) {
            Ok(LongTermClientValidation::Validated(_)) => Progress::Done,
            Ok(LongTermClientValidation::ResendRequest(_)) if self.nonces < MAX_NONCES => {
                let Some((request, transaction)) = refresh(&mut self.auth) else {
                    return Progress::Done;
                };
                (self.request, self.transaction) = (request, transaction);
                (self.attempts, self.due) = (0, now);
                self.nonces += 1;
                Progress::Waiting
            }
            // Forged, or refused: the request is repeated, and then given up.
            _ => Progress::Waiting,
        }
    }
}

impl std::fmt::Debug for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Release")
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

fn refresh(auth: &mut LongTermClientAuth) -> Option<(Vec<u8>, TransactionId)> {
    let mut request = Message::builder_request(REFRESH, MessageWriteVec::new());
    let transaction = request.transaction_id();
    request.add_attribute(&Lifetime::new(0)).ok()?;
    let request = auth.sign_outgoing_message(request).ok()?;
    Some((request.finish(), transaction))
}
