//! All states of a tunnel, and what each knows.

use std::{collections::VecDeque, time::SystemTime};

use crate::{Down, Effect, Ending, Event, Found, Remains, Start, Step};

/// The state that follows, and what to do now.
pub type Reaction = (State, Vec<Effect>);

/// State of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Steps are still to be taken until packets pass.
    ComingUp(ComingUp),
    /// Packets pass.
    Up(Up),
    /// Packets leave beside the tunnel, for a time.
    Paused(Paused),
    /// The interface is in another network namespace; its host is no longer this one.
    Moved(Moved),
    /// Everything is being undone.
    GoingDown(GoingDown),
    /// Nothing is left to do.
    Down(Down),
}

impl State {
    /// Begins to bring a tunnel up.
    #[must_use]
    pub fn coming_up(start: Start) -> Reaction {
        ComingUp::begin(start)
    }

    /// Begins to undo what a dead supervisor left.
    #[must_use]
    pub fn going_down(remains: Remains) -> Reaction {
        GoingDown::begin(Ending::Requested, remains)
    }

    /// Reacts to an event. One that a state does not expect changes nothing.
    #[must_use]
    pub fn on(self, event: Event) -> Reaction {
        match self {
            Self::ComingUp(it) => it.on(event),
            Self::Up(it) => it.on(event),
            Self::Paused(it) => it.on(event),
            Self::Moved(it) => it.on(event),
            Self::GoingDown(it) => it.on(event),
            Self::Down(it) => (Self::Down(it), Vec::new()),
        }
    }

    /// Returns why the tunnel goes down, or is down; `None` before.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Self::GoingDown(it) => Some(&it.ending),
            Self::Down(it) => Some(&it.ending),
            _ => None,
        }
    }

    /// Returns whether the tunnel is there to be used: up, paused or moved.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Paused(_) | Self::Moved(_))
    }

    /// Returns whether packets pass, with this host as the configuration wants it.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// Returns whether the interface is in another network namespace.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    /// Returns when a pause ends.
    #[must_use]
    pub fn paused_until(&self) -> Option<SystemTime> {
        match self {
            Self::Paused(it) => Some(it.until),
            Self::Moved(it) => it.paused_until,
            _ => None,
        }
    }
}

/// A tunnel on the way up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComingUp {
    pub(crate) start: Start,
    /// Steps after the one in hand.
    pub(crate) steps: VecDeque<Step>,
    pub(crate) found: Found,
    pub(crate) remains: Remains,
    /// Reason to go down once it is up, which came while hooks ran.
    pub(crate) ending: Option<Ending>,
}

/// A tunnel through which packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Up {
    pub(crate) place: Place,
}

/// A tunnel beside which packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    pub(crate) until: SystemTime,
}

/// A tunnel whose interface is in another network namespace. A pause lasts until somebody ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub(crate) paused_until: Option<SystemTime>,
}

/// A tunnel on the way down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingDown {
    pub(crate) ending: Ending,
    /// Steps after the one in hand.
    pub(crate) steps: VecDeque<Step>,
    pub(crate) failures: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Where a tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a host that it changes.
    Host,
    /// In processes of its user.
    Rootless,
}
