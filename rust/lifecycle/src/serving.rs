//! Up, paused and moved: the tunnel is there to be used.

use std::time::{Duration, SystemTime};

use crate::{
    Effect, Ending, Event, GoingDown, KillSwitch, Moved, Paused, Reaction, Refusal, Remains, State,
    Up, state::Place,
};

/// The longest pause: nobody should have to remember one.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

impl Up {
    pub(crate) fn new(place: Place) -> Self {
        Self { place }
    }

    pub(crate) fn on(self, event: Event) -> Reaction {
        let stay = |effects| (State::Up(self), effects);
        match (self.place, event) {
            (Place::Rootless, Event::Pause { .. } | Event::Resume) => {
                stay(vec![Effect::Refuse(Refusal::NothingToPause)])
            }
            (Place::Host, Event::Pause { seconds }) => stay(vec![pause(seconds)]),
            (Place::Host, Event::Resume) => stay(vec![Effect::Refuse(Refusal::NotPaused)]),
            (Place::Host, Event::Paused { seconds, until }) => paused(seconds, until),
            (Place::Host, Event::InterfaceMoved) => moved(None),
            (place, event) => match common(event) {
                Ok(effect) => stay(effect.into_iter().collect()),
                Err(ending) => place.end(ending),
            },
        }
    }
}

impl Paused {
    pub(crate) fn on(self, event: Event) -> Reaction {
        let stay = |effects| (State::Paused(self), effects);
        let up = State::Up(Up::new(Place::Host));
        match event {
            Event::Pause { seconds } => stay(vec![pause(seconds)]),
            Event::Resume => stay(vec![Effect::Resume]),
            Event::Paused { seconds, until } => paused(seconds, until),
            Event::Resumed => (up, resumed()),
            Event::PauseOver => (up, vec![Effect::NoteResumed { is_asked: false }]),
            Event::InterfaceMoved => moved(Some(self.until)),
            event => match common(event) {
                Ok(effect) => stay(effect.into_iter().collect()),
                Err(ending) => Place::Host.end(ending),
            },
        }
    }
}

impl Moved {
    pub(crate) fn on(self, event: Event) -> Reaction {
        let stay = |effects| (State::Moved(self), effects);
        match event {
            Event::Pause { seconds } => {
                let refusal = unfit(seconds).unwrap_or(Refusal::HasMoved);
                stay(vec![Effect::Refuse(refusal)])
            }
            Event::Resume if self.paused_until.is_some() => {
                let moved = Self { paused_until: None };
                (State::Moved(moved), resumed())
            }
            Event::Resume => stay(vec![Effect::Refuse(Refusal::NotPaused)]),
            // The interface is no longer this process's to make again.
            Event::TunnelEnds {
                reason,
                kill_switch: KillSwitch::On | KillSwitch::Persistent,
            } => Place::Host.end(Ending::Failed(reason)),
            event => match common(event) {
                Ok(effect) => stay(effect.into_iter().collect()),
                Err(ending) => Place::Host.end(ending),
            },
        }
    }
}

impl Place {
    /// Begins to take down a tunnel that is up.
    pub(crate) fn end(self, ending: Ending) -> Reaction {
        let keeps_kill_switch = matches!(ending, Ending::Failed(_));
        match self {
            Self::Rootless => GoingDown::begin_rootless(ending),
            Self::Host => {
                let remains = Remains {
                    hooks_begun: true,
                    is_up: true,
                    has_config: true,
                    keeps_kill_switch,
                    was_closed_early: false,
                };
                GoingDown::begin(ending, remains)
            }
        }
    }
}

impl Event {
    /// Returns what follows in any state, up to the way down.
    pub(crate) fn of_process(self) -> Option<Effect> {
        match self {
            Self::MarkAsked { id, fwmark } => Some(Effect::FollowMark { id, fwmark }),
            Self::TunnelDied => Some(Effect::NoteDeath),
            Self::StartDue => Some(Effect::StartAgain),
            Self::TunnelStarted => Some(Effect::ConfigureAgain),
            _ => None,
        }
    }
}

/// Decides about events that all three states treat alike.
fn common(event: Event) -> Result<Option<Effect>, Ending> {
    let effect = match event {
        Event::Down => return Err(Ending::Requested),
        Event::Signal(signal) => return Err(Ending::Signal(signal)),
        Event::Delivered => return Err(Ending::Delivered),
        Event::EngineEnded(reason) => return Err(Ending::Failed(reason)),
        // As wg-quick does, unless a kill switch is to stay closed: then the tunnel gets another interface.
        Event::InterfaceDeleted(KillSwitch::Off) => return Err(Ending::InterfaceDeleted),
        Event::InterfaceDeleted(_) => Effect::ReplaceInterface,
        Event::TunnelEnds {
            reason,
            kill_switch: KillSwitch::Off,
        } => return Err(Ending::Tunnel(reason)),
        // Nobody's word opens a kill switch: if the process does end, another one is started.
        Event::TunnelEnds { reason, .. } => Effect::NoteReason(reason),
        Event::Request => Effect::Answer,
        Event::Reload => Effect::Reload,
        Event::Replace => Effect::Replace,
        Event::WokeUp => Effect::LookAgain,
        event => return Ok(event.of_process()),
    };
    Ok(Some(effect))
}

/// Begins a pause, if there can be one of that length.
fn pause(seconds: u64) -> Effect {
    match unfit(seconds) {
        Some(refusal) => Effect::Refuse(refusal),
        None => Effect::Pause { seconds },
    }
}

fn unfit(seconds: u64) -> Option<Refusal> {
    match Duration::from_secs(seconds) {
        Duration::ZERO => Some(Refusal::NoTime),
        time if time > LONGEST_PAUSE => Some(Refusal::TooLong),
        _ => None,
    }
}

fn paused(seconds: u64, until: SystemTime) -> Reaction {
    let note = Effect::NotePause { seconds, until };
    (State::Paused(Paused { until }), vec![note, Effect::Confirm])
}

fn resumed() -> Vec<Effect> {
    vec![Effect::NoteResumed { is_asked: true }, Effect::Confirm]
}

fn moved(paused_until: Option<SystemTime>) -> Reaction {
    let moved = State::Moved(Moved { paused_until });
    (moved, vec![Effect::ReleaseHost])
}
