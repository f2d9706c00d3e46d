//! What the handle asks of the event loop.

use std::{io, sync::mpsc::SyncSender};

use convoy_gso::BoundSockets;
use convoy_proto::{Plan, config::Snapshot};

/// Commands waiting for the event loop; more make their senders wait.
pub(crate) const COMMANDS: usize = 16;

/// Each carries the channel for its answer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Applies what was prepared; new sockets replace the present ones.
    Apply {
        plan: Box<Plan>,
        sockets: Option<BoundSockets>,
        done: SyncSender<io::Result<()>>,
    },
    /// Marks the present sockets.
    SetFwmark {
        mark: u32,
        done: SyncSender<io::Result<()>>,
    },
    /// Tells how things stand.
    Snapshot { answer: SyncSender<Box<Snapshot>> },
}

/// What needs no answer: only the latest counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) mtu: Option<u16>,
    pub(crate) stop: bool,
}
