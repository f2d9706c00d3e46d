//! Requests that are refused, and conversations that end early.

use std::io::ErrorKind;

use convoy_network::{Stream, counters::Refusal};
use fast_socks5::{
    ReplyError,
    server::{Socks5ServerProtocol, SocksServerError, states::CommandRead},
};

/// A client's request that has no answer yet.
pub(super) type Request<'a> = Socks5ServerProtocol<&'a mut Stream, CommandRead>;

/// Answers that a request was refused; returns the reason.
pub(super) async fn refuse(request: Request<'_>, refusal: Refusal) -> Refusal {
    let reply = match refusal {
        Refusal::Denied
        | Refusal::Forbidden
        | Refusal::TargetDenied
        | Refusal::Prohibited
        | Refusal::WrongPassword => ReplyError::ConnectionNotAllowed,
        Refusal::NoRoute => ReplyError::NetworkUnreachable,
        Refusal::TargetRefused => ReplyError::ConnectionRefused,
        Refusal::UnknownName | Refusal::Unreachable | Refusal::NoSource => {
            ReplyError::HostUnreachable
        }
        Refusal::TimedOut => ReplyError::ConnectionTimeout,
        Refusal::Unsupported => ReplyError::CommandNotSupported,
        Refusal::TooMany
        | Refusal::TooManyOfPeer
        | Refusal::Silent
        | Refusal::Malformed
        | Refusal::NoDescriptors
        | Refusal::TooMuchWaiting
        | Refusal::Replaced => ReplyError::GeneralFailure,
    };
    // Whether the client still listens does not matter.
    let _ = request.reply_error(&reply).await;
    refusal
}

/// Returns the reason why the conversation with a client ended early.
pub(super) fn reason(error: &SocksServerError) -> Refusal {
    match error {
        SocksServerError::AuthenticationRejected
        | SocksServerError::AuthMethodUnacceptable(_)
        | SocksServerError::EmptyUsername
        | SocksServerError::EmptyPassword => Refusal::WrongPassword,
        SocksServerError::UnknownCommand(_) => Refusal::Unsupported,
        SocksServerError::Io { source, .. } if source.kind() == ErrorKind::TimedOut => {
            Refusal::Silent
        }
        _ => Refusal::Malformed,
    }
}
