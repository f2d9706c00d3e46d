//! The loop of every supervisor: performs the effects that a tunnel's state asks for, and feeds events to the state.
//!
//! 1. A [`Place`] is the supervised tunnel and its host, as root or without.
//! 2. [`Life::serve`] brings it up and keeps it; [`Life::take_down`] ends it.
//! 3. [`Outside`] is who asks meanwhile: clients ([`control`]), [`signals`], the service manager ([`notify`]), and a
//!    machine that wakes up ([`sleep`]).
//! 4. [`events`] go to subscribers.
//!
//! Supervisors call it; clients call [`control::ask`]. `convoy_lifecycle` decides what happens next; this crate touches
//! neither the host's network nor a tunnel, and reads no configuration file.

pub mod control;
pub mod events;
pub mod notify;
pub mod signals;
pub mod sleep;

use std::{
    collections::VecDeque,
    future::{Future, pending},
    pin::Pin,
};

use convoy_lifecycle::{Down, Effect, Ending, Event, Reaction, State, Step};
use tokio::sync::oneshot;

use crate::{
    control::{Asked, Control, Reply, Request},
    notify::Watchdog,
    signals::{SignalEvent, Signals},
    sleep::Sleep,
};

/// Work that goes on while its tunnel is served.
pub type Work<T> = Pin<Box<dyn Future<Output = T>>>;

/// The place of a tunnel: everything that effects touch.
#[expect(
    async_fn_in_trait,
    reason = "the loop and its place stay on one thread"
)]
pub trait Place {
    /// Event of the place.
    type Happening;

    /// Returns whether the tunnel has a process and its interface.
    fn tunnel_runs(&self) -> bool;

    /// Takes a step. It is dropped if the start is interrupted.
    async fn step(&mut self, step: Step) -> anyhow::Result<Progress>;

    /// Performs an effect that is not a step, in the state that asked for it.
    async fn perform(
        &mut self,
        effect: Effect,
        state: &State,
        asked: &mut Option<Asked>,
    ) -> Option<Event>;

    /// Finishes what was interrupted, and begins what is due.
    async fn settle(&mut self, _state: &State) -> Option<Event> {
        None
    }

    /// Waits for the next event. May be cancelled.
    async fn next(&mut self, state: &State) -> Self::Happening;

    /// Reacts to an event; returns one for the state if that must decide.
    async fn react(&mut self, happening: Self::Happening, state: &State) -> Option<Event>;
}

/// Progress of a step.
pub enum Progress {
    /// It ends with this event.
    Ended(Event),
    /// It continues while the tunnel asks questions, which hooks may cause. Dropping it ends it.
    Goes(Work<anyhow::Result<()>>),
}

impl Progress {
    /// Reports a step that is done.
    pub fn done() -> anyhow::Result<Self> {
        Ok(Self::Ended(Event::Done(Vec::new())))
    }
}

/// Clients and signals.
pub struct Outside {
    /// `None` if there are no clients.
    control: Option<Control>,
    signals: Option<Signals>,
    /// Completes once the caller no longer wants the tunnel.
    caller_leaves: Work<()>,
    /// Clients that wait for the end of the tunnel.
    clients: Vec<oneshot::Sender<Reply>>,
}

impl Outside {
    /// Listens to clients, signals, and the caller's end.
    pub fn new(
        control: Control,
        signals: Signals,
        caller_leaves: impl Future<Output = ()> + 'static,
    ) -> Self {
        Self {
            control: Some(control),
            signals: Some(signals),
            caller_leaves: Box::pin(caller_leaves),
            clients: Vec::new(),
        }
    }

    /// Listens to no client and no signal.
    pub fn nobody() -> Self {
        Self {
            control: None,
            signals: None,
            caller_leaves: Box::pin(pending()),
            clients: Vec::new(),
        }
    }

    /// Answers the clients that waited for the end, once no new client can find this supervisor.
    pub async fn finish(self, reply: &Reply) {
        if let Some(control) = self.control {
            control.finish(self.clients, reply).await;
        }
    }

    /// Waits for an event that interrupts the start. Once the tunnel is going down, only keeps clients waiting. May be
    /// cancelled.
    async fn interruption(&mut self, state: &State) -> Event {
        let is_coming_up = matches!(state, State::ComingUp(_));
        let reason = match is_coming_up {
            true => "the tunnel is coming up",
            false => "the tunnel is going down",
        };
        loop {
            let next_down = async {
                match &mut self.control {
                    Some(control) => control.next_down(reason).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                client = next_down => {
                    self.clients.push(client);
                    if is_coming_up {
                        return Event::Down;
                    }
                }
                signal = next_end(&mut self.signals), if is_coming_up => return Event::Signal(signal),
                () = &mut self.caller_leaves, if is_coming_up => return Event::CallerLeft,
            }
        }
    }

    fn on_request(&mut self, asked: Asked) -> (Event, Option<Asked>) {
        let event = match asked.request {
            Request::Down => {
                self.clients.push(asked.reply);
                return (Event::Down, None);
            }
            Request::Pause { seconds } => Event::Pause { seconds },
            Request::Resume => Event::Resume,
            _ => Event::Request,
        };
        (event, Some(asked))
    }
}

/// A tunnel's state and its pending effects.
pub struct Life {
    state: State,
    effects: VecDeque<Effect>,
    /// A step in progress.
    work: Option<Work<anyhow::Result<()>>>,
    /// A client that waits for an answer.
    asked: Option<Asked>,
    watches: Option<(Sleep, Watchdog)>,
    /// Reason why the tunnel did not come up.
    failure: Option<anyhow::Error>,
}

impl Life {
    /// Begins with a first state and its effects.
    pub fn new((state, effects): Reaction) -> Self {
        Self {
            state,
            effects: effects.into(),
            work: None,
            asked: None,
            watches: None,
            failure: None,
        }
    }

    /// Takes the reason why the tunnel did not come up.
    pub fn take_failure(&mut self) -> Option<anyhow::Error> {
        self.failure.take()
    }

    /// Brings the tunnel up and serves it; returns why it goes down.
    pub async fn serve<P: Place>(&mut self, place: &mut P, outside: &mut Outside) -> Ending {
        loop {
            if let Some(ending) = self.state.ending() {
                return ending.clone();
            }
            self.turn(place, outside).await;
        }
    }

    /// Takes the tunnel down.
    pub async fn take_down<P: Place>(mut self, place: &mut P, outside: &mut Outside) -> Down {
        loop {
            if let State::Down(down) = self.state {
                return down;
            }
            self.turn(place, outside).await;
        }
    }

    /// Performs the next effect or, if there is none, waits for an event.
    async fn turn<P: Place>(&mut self, place: &mut P, outside: &mut Outside) {
        let event = match self.effects.pop_front() {
            Some(Effect::Step(step)) => self.step(place, step, outside).await,
            Some(effect) => {
                let asked = &mut self.asked;
                place.perform(effect, &self.state, asked).await
            }
            None if self.state.is_serving() => self.next_of_serving(place, outside).await,
            None => self.next(place, outside).await,
        };
        if let Some(event) = event {
            let (state, effects) = self.state.clone().on(event);
            self.state = state;
            self.effects.extend(effects);
        }
    }

    async fn step<P: Place>(
        &mut self,
        place: &mut P,
        step: Step,
        outside: &mut Outside,
    ) -> Option<Event> {
        let progress = tokio::select! {
            progress = place.step(step) => progress,
            event = outside.interruption(&self.state) => return Some(event),
        };
        match progress {
            Ok(Progress::Ended(event)) => Some(event),
            Ok(Progress::Goes(work)) => {
                self.work = Some(work);
                None
            }
            Err(error) => Some(self.failed(place, error)),
        }
    }

    /// Waits while the tunnel comes up or goes down.
    async fn next<P: Place>(&mut self, place: &mut P, outside: &mut Outside) -> Option<Event> {
        tokio::select! {
            outcome = outcome(&mut self.work) => {
                self.work = None;
                Some(match outcome {
                    Ok(()) => Event::Done(Vec::new()),
                    Err(error) => self.failed(place, error),
                })
            }
            happening = place.next(&self.state) => place.react(happening, &self.state).await,
            event = outside.interruption(&self.state) => {
                self.work = None;
                Some(event)
            }
        }
    }

    async fn next_of_serving<P: Place>(
        &mut self,
        place: &mut P,
        outside: &mut Outside,
    ) -> Option<Event> {
        let event = place.settle(&self.state).await;
        if event.is_some() {
            return event;
        }
        let watches = match self.watches.take() {
            Some(watches) => watches,
            None => (Sleep::new().await, Watchdog::new()),
        };
        let (sleep, watchdog) = self.watches.insert(watches);
        tokio::select! {
            asked = next_request(&mut outside.control) => {
                let (event, asked) = outside.on_request(asked);
                self.asked = asked;
                Some(event)
            }
            signal = next_signal(&mut outside.signals) => Some(match signal {
                SignalEvent::End(signal) => Event::Signal(signal),
                SignalEvent::Reload => Event::Reload,
                SignalEvent::Replace => Event::Replace,
            }),
            happening = place.next(&self.state) => place.react(happening, &self.state).await,
            () = sleep.resumed() => Some(Event::WokeUp),
            () = watchdog.due() => {
                watchdog.calm();
                None
            }
        }
    }

    /// Keeps the error of a start, to be returned to the caller unchanged.
    fn failed<P: Place>(&mut self, place: &P, error: anyhow::Error) -> Event {
        let event = Event::Failed {
            reason: format!("{error:#}"),
            tunnel_runs: place.tunnel_runs(),
        };
        if matches!(self.state, State::ComingUp(_)) {
            self.failure = Some(error);
        }
        event
    }
}

async fn outcome(work: &mut Option<Work<anyhow::Result<()>>>) -> anyhow::Result<()> {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

async fn next_request(control: &mut Option<Control>) -> Asked {
    match control {
        Some(control) => control.next().await,
        None => pending().await,
    }
}

async fn next_end(signals: &mut Option<Signals>) -> &'static str {
    match signals {
        Some(signals) => signals.next_end().await,
        None => pending().await,
    }
}

async fn next_signal(signals: &mut Option<Signals>) -> SignalEvent {
    match signals {
        Some(signals) => signals.next().await,
        None => pending().await,
    }
}
