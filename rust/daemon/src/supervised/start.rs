//! Everything that a tunnel process gets from the supervisor that starts it, in one message.

use std::{
    collections::BTreeMap,
    os::{fd::OwnedFd, unix::net::UnixListener},
};

use anyhow::{Context, ensure};
use convoy_process::message::Message;
use nix::sys::socket::{Backlog, getsockopt, listen, sockopt};
use serde::{Deserialize, Serialize};

use crate::args::TunnelOptions;

/// Settings of a tunnel process; [`HandedOver`] comes with them. Settings that only another version knows are refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Options of the data path and the log.
    pub options: TunnelOptions,
    /// Whether it keeps running without a supervisor.
    pub outlives_supervisor: bool,
    /// The MTU in bytes if the interface is in another network namespace, or a stack in user space.
    pub inner_mtu: Option<u16>,
    /// Whether nothing leaves before the supervisor has configured an outer tunnel.
    pub has_outer: bool,
    /// Environment variables that choose what is logged.
    pub log: BTreeMap<String, String>,
}

impl Message for Start {
    /// Longest message with a tunnel's settings, in bytes.
    const MAX_BYTES: usize = 64 << 10;
}

/// The descriptors of a tunnel process: its TUN, or the socket of a stack in user space, and the listening sockets of the
/// UAPI and for supervisors.
pub type HandedOver = [OwnedFd; 3];

/// A supervisor's part in a tunnel that runs.
pub(crate) struct Supervision {
    /// Where supervisors connect.
    pub(crate) listener: UnixListener,
    /// As in [`Start`], both.
    pub(crate) outlives_supervisor: bool,
    pub(crate) has_outer: bool,
}

impl Supervision {
    pub(crate) fn new(start: &Start, listener: OwnedFd) -> anyhow::Result<Self> {
        let is_listening = getsockopt(&listener, sockopt::AcceptConn).unwrap_or(false);
        ensure!(is_listening, "the socket for supervisors does not listen");
        // Clients learn this process's number from the kernel rather than that of the supervisor, which called
        // listen(2) first.
        listen(&listener, Backlog::MAXCONN).context("cannot listen for supervisors")?;
        Ok(Self {
            listener: listener.into(),
            outlives_supervisor: start.outlives_supervisor,
            has_outer: start.has_outer,
        })
    }
}
