//! Reasons why something was refused.

use thiserror::Error;

/// The STUN error code of a server that has forgotten the nonce of a request (RFC 8489 §9.2.4).
pub(crate) const STALE_NONCE: u16 = 438;

/// More peers than [`MAX_PEERS`](crate::MAX_PEERS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a relay serves at most {} peers", crate::MAX_PEERS)]
pub struct TooManyPeers;

/// A user name or password that no STUN message can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidCredentials {
    /// The user name is empty or longer than 508 bytes (RFC 8489 §14.3).
    #[error("the user name must have 1 to 508 bytes")]
    UserName,
    /// The password is empty or longer than 508 bytes.
    #[error("the password must have 1 to 508 bytes")]
    Password,
}

/// Bytes of a stream that begin neither a STUN message nor ChannelData, or exceed the longest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the relay's stream carries something else than TURN")]
pub struct NotTurn;

/// Why there is no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The server did not answer in time.
    #[error("the relay does not answer")]
    Silent,
    /// The server refuses the user name or the password (401).
    #[error("the relay refuses the credentials")]
    Credentials,
    /// The user has no more allocations, or the server no more addresses (486, 508).
    #[error("the relay has no allocation to spare")]
    Quota,
    /// The server gives no address of a peer's family (440).
    #[error("the relay has no address of the peer's family")]
    Family,
    /// The server says to have given an address that cannot be its own.
    #[error("the relay gives an address that cannot be its own")]
    Address,
    /// The server refuses a peer's address (403).
    #[error("the relay refuses the peer's address")]
    Peer,
    /// The server refuses for another reason: the STUN error code.
    #[error("the relay answers with error {0}")]
    Refused(u16),
    /// The allocation has ended: it expired, or the server has forgotten it.
    #[error("the relay has ended the allocation")]
    Lost,
    /// The connection could not be made, or it broke.
    #[error("the connection to the relay failed")]
    Connection,
}

impl Failure {
    /// Names what a STUN error code means to the user.
    pub(crate) fn of_code(code: u16) -> Self {
        match code {
            401 => Self::Credentials,
            403 => Self::Peer,
            440 | 443 => Self::Family,
            486 | 508 => Self::Quota,
            437 => Self::Lost,
            code => Self::Refused(code),
        }
    }
}
