//! Requests that this crate makes itself, beside those of the library: signed, repeated, and rewritten if the server
//! calls their nonce stale.

use std::{net::SocketAddr, time::Duration};

use turn_client_proto::{
    stun::{
        auth::{Feature, LongTermClientAuth, LongTermClientValidation},
        types::attribute::ErrorCode,
        types::message::{
            IntegrityAlgorithm, Message, MessageHeader, MessageWriteVec, TransactionId,
        },
        types::prelude::{MessageWrite, MessageWriteExt},
    },
    types::{
        attribute::{ChannelNumber as Number, Lifetime, XorPeerAddress},
        message::{CHANNEL_BIND, REFRESH},
    },
};

use crate::{channel::ChannelNumber, credentials::Credentials, error::STALE_NONCE};

/// Most requests with other nonces.
const MAX_NONCES: u32 = 3;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Asks that the allocation lasts for this many seconds; none end it.
    Refresh(u32),
    /// Binds a channel to a peer, or keeps it bound.
    Bind(ChannelNumber, SocketAddr),
}

/// The times at which a request is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) pause: Duration,
    /// The factor by which the pause grows after each attempt.
    pub(crate) growth: u32,
    pub(crate) attempts: u32,
}

/// A request, until an answer to it has arrived.
#[derive(Debug)]
pub(crate) struct Request {
    purpose: Purpose,
    schedule: Schedule,
    bytes: Vec<u8>,
    transaction: TransactionId,
    /// Whether it has the user's name and a nonce.
    is_signed: bool,
    attempts: u32,
    nonces: u32,
    due: Duration,
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

/// Makes what signs requests, and checks the answers to them.
pub(crate) fn signer(credentials: &Credentials) -> LongTermClientAuth {
    let mut auth = LongTermClientAuth::new();
    auth.set_credentials(credentials.for_library().into());
    auth.set_supported_integrity(IntegrityAlgorithm::Sha1);
    auth.set_anonymous_username(Feature::Auto);
    auth
}

impl Request {
    /// Makes a request; `None` if no message can carry it.
    pub(crate) fn new(
        purpose: Purpose,
        schedule: Schedule,
        auth: &mut LongTermClientAuth,
        now: Duration,
    ) -> Option<Self> {
        let (bytes, transaction) = write(purpose, auth)?;
        Some(Self {
            purpose,
            schedule,
            bytes,
            transaction,
            is_signed: has_nonce(auth),
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
        (Progress::Waiting, Some(self.bytes.clone()))
    }

    /// The time of the next [`Self::poll`].
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Returns whether it is sent under this transaction.
    pub(crate) fn has_transaction(&self, transaction: TransactionId) -> bool {
        self.transaction == transaction
    }

    /// Returns whether a message answers it, by all that can be known before the message is checked.
    pub(crate) fn is_answered_by(&self, message: &Message<'_>) -> bool {
        message.is_response() && message.transaction_id() == self.transaction
    }

    /// Takes an answer.
    pub(crate) fn handle(
        &mut self,
        answer: &Message<'_>,
        auth: &mut LongTermClientAuth,
        now: Duration,
    ) -> Progress {
        match auth.validate_incoming_message(answer) {
            Ok(LongTermClientValidation::Validated(_)) => {
                let error = answer.attribute::<ErrorCode>();
                error.map_or(Progress::Done, |error| Progress::Refused(error.code()))
            }
            Ok(LongTermClientValidation::ResendRequest(_)) => self.renew(auth, now),
            // The answer to another request has brought the nonce.
            Err(_) if !self.is_signed && has_nonce(auth) => self.renew(auth, now),
            // Forged, or refused: the request is repeated, and then given up.
            Err(_) => Progress::Waiting,
        }
    }

    /// Rewrites the request with the server's newest nonce.
    fn renew(&mut self, auth: &mut LongTermClientAuth, now: Duration) -> Progress {
        if self.nonces == MAX_NONCES {
            return Progress::Refused(STALE_NONCE);
        }
        let Some((bytes, transaction)) = write(self.purpose, auth) else {
            return Progress::Silent;
        };
        (self.bytes, self.transaction) = (bytes, transaction);
        (self.attempts, self.due) = (0, now);
        self.is_signed = has_nonce(auth);
        self.nonces += 1;
        Progress::Waiting
    }
}

/// Reads the transaction of a STUN message (RFC 8489 §5) without looking at its attributes.
pub(crate) fn transaction_of(message: &[u8]) -> Option<TransactionId> {
    let header = MessageHeader::from_bytes(message);
    Some(header.ok()?.transaction_id())
}

/// Writes the request that ends the allocation, once; `None` before the server has given a nonce.
pub(crate) fn end_of_allocation(auth: &mut LongTermClientAuth) -> Option<Vec<u8>> {
    let is_signed = has_nonce(auth);
    let (request, _) = write(Purpose::Refresh(0), auth).filter(|_| is_signed)?;
    Some(request)
}

fn has_nonce(auth: &LongTermClientAuth) -> bool {
    auth.message_signature_bytes() > 0
}

fn write(purpose: Purpose, auth: &mut LongTermClientAuth) -> Option<(Vec<u8>, TransactionId)> {
    let method = match purpose {
        Purpose::Refresh(_) => REFRESH,
        Purpose::Bind(..) => CHANNEL_BIND,
    };
    let mut request = Message::builder_request(method, MessageWriteVec::new());
    let transaction = request.transaction_id();
    match purpose {
        Purpose::Refresh(lifetime) => request.add_attribute(&Lifetime::new(lifetime)).ok()?,
        Purpose::Bind(channel, peer) => {
            request.add_attribute(&Number::new(channel.get())).ok()?;
            let peer = XorPeerAddress::new(peer, transaction);
            request.add_attribute(&peer).ok()?;
        }
    }
    let request = auth.sign_outgoing_message(request).ok()?;
    Some((request.finish(), transaction))
}
