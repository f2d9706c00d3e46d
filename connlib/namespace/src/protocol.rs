//! Messages of owner and holder ([`convoy_process::message`]).

use std::io;

use convoy_netlink::NetlinkError;
use convoy_process::message::Message;
use convoy_tun::OpenError;
use serde::{Deserialize, Serialize};

use super::settings::Settings;

/// A request of the owner.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Request {
    /// The first request.
    SetUp(Settings),
    Sockets {
        kind: SocketKind,
        ipv6: bool,
        count: usize,
    },
}

/// The holder's answer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    /// With the namespaces, the TUN, and for a gateway the inlet and its listeners.
    Ready {
        warnings: Vec<String>,
    },
    /// With the sockets.
    Sockets,
    Refused(Refusal),
}

impl Message for Request {
    /// Longest request of a namespace, in bytes: half a million routes.
    const MAX_BYTES: usize = 64 << 20;
}

impl Message for Answer {
    /// Longest answer of its holder, in bytes.
    const MAX_BYTES: usize = 64 << 10;
}

/// Why the holder does not do it; numbers are the kernel's.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Refusal {
    Tun { reason: String, fix: Option<String> },
    Gateway { reason: String, fix: String },
    Step { doing: String, error: i32 },
    Socket(i32),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum SocketKind {
    Tcp,
    Udp,
}

impl Refusal {
    /// Says why the TUN cannot be opened.
    pub(super) fn of_tun(error: &OpenError) -> Self {
        Self::Tun {
            reason: error.reason(),
            fix: error.fix(),
        }
    }

    /// Names the step during which a system call failed.
    pub(super) fn at(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Step {
            doing: doing.into(),
            error: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Names the step during which the kernel refused a request of rtnetlink.
    pub(super) fn of_netlink(doing: impl Into<String>) -> impl FnOnce(NetlinkError) -> Self {
        |error| Self::at(doing)(error.cause)
    }
}
