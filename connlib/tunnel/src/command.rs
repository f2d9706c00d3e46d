//! Requests from the handle to the event loop.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc::SyncSender},
    vec,
};

use convoy_gso::BoundSockets;
use convoy_proto::{
    Followed, LinkChange, Listing, Plan,
    config::{Directs, PublicKey, Relay},
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::outer::OuterPlan;

/// Most commands waiting for the event loop; further senders block.
pub(crate) const COMMANDS: usize = 16;

/// A request to the event loop, with the channel for its answer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Asks for the descriptors of the present sockets, to set their firewall mark.
    Descriptors {
        answer: SyncSender<Vec<Arc<OwnedFd>>>,
    },
    /// Does the part of a change that may fail: registers new sockets for the [`Command::Apply`] or
    /// [`Command::Link`] that follows. Without new ones, the present ones have the firewall mark already.
    Prepare {
        sockets: Option<BoundSockets>,
        fwmark: u32,
        done: SyncSender<io::Result<()>>,
    },
    /// Applies a plan, and takes the prepared sockets into use; cannot fail. Returns the plan, as freeing it
    /// takes a while.
    Apply {
        plan: Box<Plan>,
        port: u16,
        done: SyncSender<Box<Plan>>,
    },
    /// Sets the link up, with the prepared sockets, or down, which closes the sockets.
    Link {
        is_up: bool,
        port: u16,
        done: SyncSender<()>,
    },
    /// Asks for the present state.
    Snapshot { answer: SyncSender<Box<Listing>> },
    /// Reports the handshakes of these peers, and of no others. Returns the former ones, as freeing them
    /// takes a while.
    Follow {
        /// Peers of this tunnel, and of the outer one if it goes through another.
        peers: Box<[Followed; 2]>,
        done: oneshot::Sender<Box<[Followed; 2]>>,
    },
    /// Changes the outer tunnel of one that goes through another.
    Outer {
        plan: Box<OuterPlan>,
        done: oneshot::Sender<()>,
    },
    /// Sets the direct paths. Returns the list, as freeing it takes a while.
    Directs {
        directs: Box<Directs>,
        done: oneshot::Sender<Box<Directs>>,
    },
    /// Sets the TURN servers. Returns the list, as freeing it takes a while.
    Relays {
        relays: Vec<Relay>,
        done: oneshot::Sender<Vec<Relay>>,
    },
    /// Begins handshakes with these peers. Returns the list, as freeing it takes a while.
    Handshake {
        peers: vec::IntoIter<PublicKey>,
        done: oneshot::Sender<vec::IntoIter<PublicKey>>,
    },
}

/// The rest of a command.
#[derive(Debug)]
pub(crate) enum Task {
    Apply {
        plan: Box<Plan>,
        done: SyncSender<Box<Plan>>,
    },
    Link {
        change: LinkChange,
        done: SyncSender<()>,
    },
    Snapshot {
        listing: Box<Listing>,
        answer: SyncSender<Box<Listing>>,
    },
    Handshake {
        peers: vec::IntoIter<PublicKey>,
        done: oneshot::Sender<vec::IntoIter<PublicKey>>,
    },
}

/// Most events of followed peers' handshakes that wait for the handle. Further ones wait in the state machine,
/// which keeps the latest of each peer.
pub(crate) const HANDSHAKE_EVENTS: usize = 64;

/// Signals, which need no answer: only the latest values matter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) mtu: Option<u16>,
    /// The number of route changes.
    pub(crate) routes: u32,
    /// The number of times that the wall clock was set.
    pub(crate) wall_clock: u32,
    pub(crate) stop: bool,
}

/// The event loop's end of both: commands and signals.
#[derive(Debug)]
pub(crate) struct Requests {
    commands: mpsc::Receiver<Command>,
    signals: watch::Receiver<Signals>,
    /// Received by [`Requests::ready`], for [`Requests::next_command`].
    next: Option<Command>,
}

impl Requests {
    pub(crate) fn new(
        commands: mpsc::Receiver<Command>,
        signals: watch::Receiver<Signals>,
    ) -> Self {
        Self {
            commands,
            signals,
            next: None,
        }
    }

    /// Waits for a command or a signal. Cancel-safe.
    pub(crate) async fn ready(&mut self) {
        if self.next.is_some() {
            return;
        }
        tokio::select! {
            biased;
            Some(command) = self.commands.recv() => self.next = Some(command),
            _ = self.signals.changed() => self.signals.mark_changed(),
        }
    }

    /// The oldest command that is waiting.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        self.next.take().or_else(|| self.commands.try_recv().ok())
    }

    /// The signals if they have changed since the last call. Once every handle is gone, `stop` is set.
    pub(crate) fn changed_signals(&mut self) -> Option<Signals> {
        let changed = self.signals.has_changed();
        if matches!(changed, Ok(false)) {
            return None;
        }
        let mut signals = *self.signals.borrow_and_update();
        signals.stop |= changed.is_err();
        Some(signals)
    }
}
