//! TURN servers, which relay datagrams for peers that cannot be reached directly.

use std::{fmt, net::SocketAddr, sync::Arc};

#[cfg(feature = "serde")]
use base64::{Engine as _, prelude::BASE64_STANDARD};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Most addresses of TURN servers in one tunnel: two of each configured server.
pub const MAX_RELAYS: usize = 8;

/// The transport to a TURN server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RelayTransport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
}

impl RelayTransport {
    /// Names the transport, for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// The address of a TURN server, and the transport to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayAddress {
    /// Address and port.
    pub server: SocketAddr,
    /// The transport.
    pub transport: RelayTransport,
}

/// A password; wiped from memory when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Authorities whose signatures on certificates count, as `convoy-carrier` writes them. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(into = "String", try_from = "String"))]
pub struct Authorities(pub Arc<[u8]>);

/// In Base64.
#[cfg(feature = "serde")]
impl From<Authorities> for String {
    fn from(authorities: Authorities) -> Self {
        BASE64_STANDARD.encode(&authorities.0)
    }
}

#[cfg(feature = "serde")]
impl TryFrom<String> for Authorities {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self(BASE64_STANDARD.decode(text)?.into()))
    }
}

impl Default for Authorities {
    /// None: no certificate counts.
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({} bytes)", self.0.len())
    }
}

/// A TURN server at one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Relay {
    /// Its name or address as configured, without the port: TLS checks the certificate against it.
    pub host: String,
    /// Its address and port.
    pub server: SocketAddr,
    /// The transport to it.
    pub transport: RelayTransport,
    /// The user name.
    pub user: String,
    /// The user's password.
    pub password: Password,
    /// Authorities that may vouch for it. Only for TLS.
    pub authorities: Authorities,
}

/// The state of a TURN server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayStatus {
    /// Its name or address as configured.
    pub host: String,
    /// Its address and port.
    pub server: SocketAddr,
    /// The transport to it.
    pub transport: RelayTransport,
    /// How far it is.
    pub state: RelayState,
    /// Number of peers whose data it carries.
    pub carries: usize,
}

/// How far a TURN server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayState {
    /// No peer needs it.
    Idle,
    /// A connection to it is being made.
    Connecting,
    /// It is being asked for an address.
    Allocating,
    /// It has given these addresses, which peers see: one of each family at most, IPv6 first.
    Ready(Vec<SocketAddr>),
    /// It does not work, for this reason; it is tried again.
    Failed(String),
}

impl RelayState {
    /// Names the state in one word, for JSON and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Allocating => "allocating",
            Self::Ready(_) => "ready",
            Self::Failed(_) => "failed",
        }
    }
}
