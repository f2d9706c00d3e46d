//! What is varied from one measurement to the next.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most UDP payload of an IPv4 datagram (RFC 768, 791).
pub(crate) const MAX_PAYLOAD: usize = 65_507;
/// Datagrams in one `sendmmsg`, and segments that every kernel takes in one send.
pub(crate) const BATCH: usize = 64;

/// One combination of everything that is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) path: PathKind,
    pub(crate) method: Method,
    pub(crate) sink: SinkKind,
    pub(crate) ports: Ports,
    /// Each has a socket of its own.
    pub(crate) threads: usize,
    /// Bytes of UDP payload.
    pub(crate) size: usize,
}

/// What lies between the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PathKind {
    Loopback,
    Veth,
}

/// How datagrams are handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// One a call.
    SendTo,
    /// [`BATCH`] a call.
    Sendmmsg,
    /// As many as one send may carry, cut by the kernel (`UDP_SEGMENT`).
    Gso,
}

/// What is at the port that is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SinkKind {
    /// A thread that receives and counts.
    Counting,
    /// Nobody: the kernel throws datagrams away once they have arrived.
    Closed,
}

/// Where the senders' sockets are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ports {
    /// Each to a port of its own.
    Own,
    /// All to one (`SO_REUSEPORT`), as a daemon with several threads would.
    Shared,
}

impl Point {
    /// Datagrams in one call; `None` where the method has nothing to put together.
    pub(crate) fn datagrams_a_call(&self) -> Option<usize> {
        match self.method {
            Method::SendTo => Some(1),
            Method::Sendmmsg => Some(BATCH),
            Method::Gso => {
                let fits_a_packet = self.size <= self.path.largest_segment();
                let segments = (MAX_PAYLOAD / self.size).min(BATCH);
                (fits_a_packet && segments > 1).then_some(segments)
            }
        }
    }
}

impl PathKind {
    pub(crate) const ALL: [Self; 2] = [Self::Loopback, Self::Veth];

    /// The longest datagram that is one packet: longer ones are fragmented, and segments refused.
    fn largest_segment(self) -> usize {
        match self {
            Self::Loopback => MAX_PAYLOAD,
            Self::Veth => 1472,
        }
    }
}

impl Method {
    pub(crate) const ALL: [Self; 3] = [Self::SendTo, Self::Sendmmsg, Self::Gso];
}

impl SinkKind {
    pub(crate) const ALL: [Self; 2] = [Self::Counting, Self::Closed];
}

impl Ports {
    pub(crate) const ALL: [Self; 2] = [Self::Own, Self::Shared];
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SendTo => "send_to",
            Self::Sendmmsg => "sendmmsg",
            Self::Gso => "GSO",
        })
    }
}

impl fmt::Display for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Counting => "counting sink",
            Self::Closed => "closed port",
        })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Own => "a port each",
            Self::Shared => "one port",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(path: PathKind, method: Method, size: usize) -> Point {
        Point {
            path,
            method,
            sink: SinkKind::Counting,
            ports: Ports::Own,
            threads: 1,
            size,
        }
    }

    #[test]
    fn segments_fill_one_send_and_fit_the_path() {
        let gso = |path, size| point(path, Method::Gso, size).datagrams_a_call();
        assert_eq!(gso(PathKind::Veth, 2), Some(64));
        assert_eq!(gso(PathKind::Veth, 1472), Some(44));
        assert_eq!(gso(PathKind::Veth, 1473), None);
        assert_eq!(gso(PathKind::Loopback, 32_000), Some(2));
        assert_eq!(gso(PathKind::Loopback, MAX_PAYLOAD), None);
    }
}
