//! Reasons, in words for users.

use std::io;

use rustls::{CertificateError, Error};
use thiserror::Error as ThisError;

/// The reason why a stream has ended. Each reads as the end of a sentence: "relay HOST failed: …".
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Closed {
    /// The socket could not be made or marked.
    #[error("cannot open a socket: {0}")]
    Socket(String),
    /// Nothing answers at the address, or a firewall refuses.
    #[error("cannot connect: {0}")]
    Connecting(String),
    /// The server has closed the stream.
    #[error("the server has closed the connection")]
    ByServer,
    /// The network has ended it: a reset, or twenty seconds without an acknowledgement.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The server says something else than TURN.
    #[error("the server does not speak TURN")]
    NotTurn,
    /// The certificate is another name's.
    #[error("the certificate of {0} is not valid for that name")]
    WrongName(String),
    /// The certificate is signed by an unknown authority.
    #[error(
        "the certificate of {0} is signed by no authority that is trusted here (fix: name the authority's certificate by `CaFile = PATH`)"
    )]
    Untrusted(String),
    /// The certificate has expired.
    #[error("the certificate of {0} has expired")]
    Expired(String),
    /// The certificate begins to be valid later, by this machine's clock.
    #[error("the certificate of {0} is not valid yet (fix: check this machine's clock)")]
    NotYetValid(String),
    /// Something else is wrong with the certificate.
    #[error("the certificate of {0} is not accepted: {1}")]
    Certificate(String, String),
    /// TLS failed for another reason.
    #[error("no TLS with {0}: {1}")]
    Tls(String, String),
}

impl Closed {
    pub(crate) fn connecting(error: &io::Error) -> Self {
        Self::Connecting(words(error))
    }

    pub(crate) fn broken(error: &io::Error) -> Self {
        Self::Broken(words(error))
    }

    pub(crate) fn tls(name: &str, error: &Error) -> Self {
        let name = name.to_owned();
        let certificate = match error {
            Error::InvalidCertificate(certificate) => certificate,
            Error::InvalidMessage(_) => {
                return Self::Tls(name, "the server answers with something else".to_owned());
            }
            Error::AlertReceived(alert) => {
                return Self::Tls(name, format!("the server refuses it: {alert:?}"));
            }
            other => return Self::Tls(name, other.to_string()),
        };
        match certificate {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName(name)
            }
            CertificateError::UnknownIssuer => Self::Untrusted(name),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Self::Expired(name)
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid(name)
            }
            other => Self::Certificate(name, other.to_string()),
        }
    }
}

/// An error of the system without its number.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    words.to_owned()
}

/// A name that no certificate can be valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error("it is neither the name of a host nor an address")]
pub struct InvalidName;

/// The reason why a file is no list of authorities.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum InvalidRoots {
    /// There is no certificate in it.
    #[error("it contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)")]
    Empty,
    /// A certificate cannot be read; the first one is number 1.
    #[error("certificate {0} is damaged")]
    Damaged(usize),
    /// The file is longer than a list of authorities can be.
    #[error("it contains more than {0} certificates")]
    TooMany(usize),
    /// The certificates are too long together.
    #[error("its certificates are too long together")]
    TooLong,
}
