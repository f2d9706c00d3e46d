//! Answers of STUN servers, and addresses of this machine.

use std::net::{IpAddr, SocketAddr};

use convoy_portmap::{Probed, Problem};

/// Everything that is known of the NAT.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// This machine's addresses outside of all tunnels.
    pub(super) own: Vec<IpAddr>,
    pub(super) asked: Vec<Asked>,
    /// Servers without an address, and why.
    pub(super) unresolved: Vec<(String, String)>,
    /// The router, as far as it was asked to forward ports.
    pub(super) router: Option<Result<Probed, Problem>>,
    /// Tunnel interfaces by which requests left.
    pub(super) tunnels: Vec<String>,
}

/// An address of a server that was asked.
#[derive(Debug)]
pub(super) struct Asked {
    /// The server as it was named.
    pub(super) server: String,
    pub(super) address: SocketAddr,
    pub(super) answer: Answer,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It saw the socket at `outside`.
    Seen {
        /// The socket's port at this machine.
        local_port: u16,
        outside: SocketAddr,
    },
    Silence,
    /// Why nothing could be sent.
    Unsent(String),
}
