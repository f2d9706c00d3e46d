//! A REFRESH request of our own, beside those of the library: it checks or releases an allocation.
//!
//! The library refreshes only allocations that it has made, and only when they are about to expire. A process that was
//! killed leaves one behind, and until it has expired, the server answers 437 to the same address and port. And a
//! server that has gone is to be noticed long before that.

use std::time::Duration;

use turn_client_proto::stun::{
    auth::LongTermClientAuth,
    types::message::{Message, TransactionId},
};

use crate::{
    credentials::Credentials,
    request::{Progress, Purpose, Request, Schedule, signer},
    server::Transport,
};

/// Lifetime in seconds that a check asks for: as long as the library does, which relies on it.
const LIFETIME: u32 = 1800;

/// A request, until an answer to it has arrived.
pub(crate) struct Refresh {
    auth: LongTermClientAuth,
    request: Request,
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
        let mut auth = signer(credentials);
        let request = Request::new(Purpose::Refresh(lifetime), schedule, &mut auth, now)?;
        Some(Self { auth, request })
    }

    /// Returns the request when it is due, and says when there is nothing left to wait for.
    pub(crate) fn poll(&mut self, now: Duration) -> (Progress, Option<Vec<u8>>) {
        self.request.poll(now)
    }

    /// The time of the next [`Self::poll`].
    pub(crate) fn due(&self) -> Duration {
        self.request.due()
    }

    /// Returns whether it is sent under this transaction.
    pub(crate) fn has_transaction(&self, transaction: TransactionId) -> bool {
        self.request.has_transaction(transaction)
    }

    /// Takes a message from the server; `None` if it answers another request.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: Duration) -> Option<Progress> {
        let message = Message::from_bytes(bytes).ok()?;
        let is_answer = self.request.is_answered_by(&message);
        is_answer.then(|| self.request.handle(&message, &mut self.auth, now))
    }
}

/// Leaves out what signs the request, which prints the password.
impl std::fmt::Debug for Refresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refresh")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
