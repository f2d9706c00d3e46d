//! One server: when to ask it, and what it has answered.

use std::{net::SocketAddr, time::Duration};

use stun_types::message::TransactionId;

use crate::message::{REQUEST_LEN, canonical, request, transaction};

/// Most requests of one transaction: Rc of RFC 8489 §6.2.1.
pub const MAX_REQUESTS: u32 = 7;
/// Time between the first two requests of a transaction; doubled after each.
pub(crate) const RTO: Duration = Duration::from_millis(500);
/// Time from the last request of a transaction to its end: Rm of RFC 8489 §6.2.1, times RTO.
const LAST_WAIT: Duration = Duration::from_secs(8);
/// Time from an answer to the next request: NATs forget a flow after 30 s or more.
const REFRESH: Duration = Duration::from_secs(20);
/// Time for which a server rests that does not answer, or not with an address.
const REST: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The address by which the server sees this side; `None` until it answers.
    pub(crate) mapped: Option<SocketAddr>,
    transaction: Option<Transaction>,
    /// When to send the next request; for a spent transaction, when it ends.
    next: Duration,
    /// When the last request was sent; the server that has waited longest is asked first.
    pub(crate) last_sent: Option<Duration>,
}

#[derive(Debug)]
struct Transaction {
    id: TransactionId,
    sent: u32,
}

impl Server {
    /// A server to be asked at once.
    pub(crate) fn new(address: SocketAddr, now: Duration) -> Self {
        Self {
            address,
            mapped: None,
            transaction: None,
            next: now,
            last_sent: None,
        }
    }

    /// Returns whether the server has this address, however it is written.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        canonical(self.address) == canonical(address)
    }

    /// Forgets what the server has answered, and what it was asked.
    pub(crate) fn forget(&mut self) {
        self.mapped = None;
        self.transaction = None;
    }

    /// Brings the next transaction forward, unless one is under way.
    pub(crate) fn hurry(&mut self, now: Duration) {
        if self.transaction.is_none() {
            let earliest = self.last_sent.map(|at| at.saturating_add(RTO));
            self.next = earliest.map_or(now, |at| at.max(now));
        }
    }

    /// Returns when to send the next request; `None` while the answer to the last one may come.
    pub(crate) fn next_request(&self) -> Option<Duration> {
        (!self.is_spent()).then_some(self.next)
    }

    /// Returns when the transaction ends without an answer; `None` before its last request.
    pub(crate) fn ends_at(&self) -> Option<Duration> {
        self.is_spent().then_some(self.next)
    }

    fn is_spent(&self) -> bool {
        let transaction = self.transaction.as_ref();
        transaction.is_some_and(|it| it.sent >= MAX_REQUESTS)
    }

    /// Makes the next request; `None` without randomness for it, which is then asked for later.
    pub(crate) fn request(
        &mut self,
        random: impl FnOnce() -> Option<[u8; 12]>,
        now: Duration,
    ) -> Option<[u8; REQUEST_LEN]> {
        let begun = self.transaction.take().or_else(|| {
            let id = transaction(random()?);
            Some(Transaction { id, sent: 0 })
        });
        let Some(Transaction { id, sent }) = begun else {
            self.next = now.saturating_add(RTO);
            return None;
        };
        let sent = sent + 1;
        let wait = match sent {
            MAX_REQUESTS.. => LAST_WAIT,
            _ => RTO * 2_u32.pow(sent - 1),
        };
        self.transaction = Some(Transaction { id, sent });
        self.next = now.saturating_add(wait);
        self.last_sent = Some(now);
        Some(request(id))
    }

    /// Returns whether the server is being asked, with this identifier.
    pub(crate) fn has_asked(&self, id: TransactionId) -> bool {
        self.transaction.as_ref().is_some_and(|it| it.id == id)
    }

    /// Ends the transaction with an address, or without one.
    pub(crate) fn end(&mut self, mapped: Option<SocketAddr>, now: Duration) {
        self.transaction = None;
        self.mapped = mapped;
        let pause = mapped.map_or(REST, |_| REFRESH);
        self.next = now.saturating_add(pause);
    }
}
