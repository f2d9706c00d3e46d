//! Addresses at which a peer may be reached.

use std::net::SocketAddr;

/// How a candidate came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CandidateKind {
    /// An address of the machine.
    Host,
    /// A port that the router forwards, by PCP, NAT-PMP or UPnP.
    Mapped,
    /// The address that a STUN server saw.
    Reflexive,
    /// The source of an authentic probe.
    Learnt,
    /// An address of a relay.
    Relayed,
}

/// An address that a peer may be reached at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Candidate {
    /// How it came to be known.
    pub kind: CandidateKind,
    /// The address.
    pub address: SocketAddr,
}

impl CandidateKind {
    /// Names the kind in one word, for JSON and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Mapped => "mapped",
            Self::Reflexive => "reflexive",
            Self::Learnt => "learnt",
            Self::Relayed => "relayed",
        }
    }
}
