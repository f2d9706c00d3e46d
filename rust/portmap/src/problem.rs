//! Reasons why no port is mapped.

use std::net::Ipv4Addr;

use crate::mapping::Protocol;

/// A reason why no port is mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is nobody to ask.
    #[error("this machine has no default gateway of IPv4")]
    NoGateway,
    /// The router does not know the protocols, or a firewall drops the requests.
    #[error("the router {0} answers neither PCP, NAT-PMP nor UPnP")]
    Silent(Ipv4Addr),
    /// The router refuses.
    #[error("the router {router} refuses by {protocol}: {reason}")]
    Refused {
        /// Its address.
        router: Ipv4Addr,
        /// The protocol that it speaks.
        protocol: Protocol,
        /// The reason in words.
        reason: &'static str,
    },
    /// The router is itself not connected.
    #[error("the router {0} has no address outside")]
    NoAddress(Ipv4Addr),
    /// This machine cannot ask.
    #[error("the router cannot be asked: {0}")]
    System(String),
}

/// A router's reason to grant nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It speaks another protocol.
    OtherProtocol,
    /// In words.
    Reason(&'static str),
}
