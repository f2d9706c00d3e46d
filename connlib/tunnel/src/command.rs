//! What the handle asks of the event loop.

use std::{io, sync::mpsc::SyncSender};

use convoy_gso::BoundSockets;
use convoy_proto::{Plan, config::Snapshot};

/// Commands waiting for the event loop; more make their senders wait.
pub(crate) const COMMANDS: usize = 16;

/// Each carries the channel for its answer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Does what may fail about a change: registers new sockets for the [`Command::Apply`] or
    /// [`Command::Link`] that follows, or marks the present ones.
    Prepare {
        sockets: Option<BoundSockets>,
        fwmark: u32,
        done: SyncSender<io::Result<()>>,
    },
    /// Applies a plan, and uses the sockets that were prepared; cannot fail.
    Apply {
        plan: Box<Plan>,
        port: u16,
        done: SyncSender<()>,
    },
    /// The link is up, with the sockets that were prepared; or down, and they are closed.
    Link {
        is_up: bool,
        port: u16,
        done: SyncSender<()>,
    },
    /// Tells how things stand.
    Snapshot { answer: SyncSender<Box<Snapshot>> },
}

/// What needs no answer: only the latest counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) mtu: Option<u16>,
    /// Counts changes of routes.
    pub(crate) routes: u32,
    pub(crate) stop: bool,
}
