//! Every event in every state.

mod coming_up;
mod going_down;
mod serving;

use std::time::{Duration, SystemTime};

use convoy_lifecycle::{
    Effect, Event, Former, Found, KillSwitch, Reaction, Remains, Start, State, Step,
};

const HOST: Start = Start::Host {
    has_hooks: true,
    is_kill_switch_closed: false,
};

fn done() -> Event {
    Event::Done(Vec::new())
}

fn failed(tunnel_runs: bool) -> Event {
    let reason = "it broke".to_owned();
    Event::Failed {
        reason,
        tunnel_runs,
    }
}

fn ends(kill_switch: KillSwitch) -> Event {
    let reason = "a reason".to_owned();
    Event::TunnelEnds {
        reason,
        kill_switch,
    }
}

fn until() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(60)
}

/// Answers each step, until the state waits for something else; returns the steps.
fn walk(reaction: Reaction, answer: impl Fn(Step) -> Event) -> (State, Vec<Step>) {
    let (mut state, mut effects) = reaction;
    let mut steps = Vec::new();
    while let [Effect::Step(step)] = effects[..] {
        steps.push(step);
        (state, effects) = state.on(answer(step));
    }
    assert_eq!(effects, []);
    (state, steps)
}

/// Answers that each step is done.
fn always_done(found: Found) -> impl Fn(Step) -> Event {
    move |step| match step {
        Step::FindTunnel => Event::Found(found),
        _ => done(),
    }
}

fn up(start: Start) -> State {
    let (state, _) = walk(State::coming_up(start), always_done(Found::default()));
    assert!(state.is_up());
    state
}

fn on(state: &State, event: Event) -> Reaction {
    state.clone().on(event)
}

/// One event of each kind, and both of a kind that is decided by its facts.
fn every_event() -> Vec<Event> {
    let found = Found {
        tunnel: Some(Former::SameVersion),
        ..Found::default()
    };
    let events = vec![
        done(),
        failed(false),
        Event::Found(found),
        Event::WgQuickHasIt(KillSwitch::On),
        Event::Down,
        Event::Signal("SIGTERM"),
        Event::CallerLeft,
        Event::Pause { seconds: 60 },
        Event::Resume,
        Event::Request,
        Event::Reload,
        Event::Replace,
        Event::Paused {
            seconds: 60,
            until: until(),
        },
        Event::Resumed,
        Event::PauseOver,
        Event::InterfaceMoved,
        Event::InterfaceDeleted(KillSwitch::Off),
        Event::InterfaceDeleted(KillSwitch::On),
        Event::WokeUp,
        Event::MarkAsked {
            id: 1,
            fwmark: Some(2),
        },
        ends(KillSwitch::Off),
        ends(KillSwitch::Persistent),
        Event::TunnelDied,
        Event::StartDue,
        Event::TunnelStarted,
        Event::Delivered,
        Event::EngineEnded("a reason".to_owned()),
    ];
    let mut kinds: Vec<_> = events.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..25).collect::<Vec<_>>());
    events
}

/// Numbers the kinds, so that none is forgotten.
fn kind(event: &Event) -> usize {
    match event {
        Event::Done(_) => 0,
        Event::Failed { .. } => 1,
        Event::Found(_) => 2,
        Event::WgQuickHasIt(_) => 3,
        Event::Down => 4,
        Event::Signal(_) => 5,
        Event::CallerLeft => 6,
        Event::Pause { .. } => 7,
        Event::Resume => 8,
        Event::Request => 9,
        Event::Reload => 10,
        Event::Replace => 11,
        Event::Paused { .. } => 12,
        Event::Resumed => 13,
        Event::PauseOver => 14,
        Event::InterfaceMoved => 15,
        Event::InterfaceDeleted(_) => 16,
        Event::WokeUp => 17,
        Event::MarkAsked { .. } => 18,
        Event::TunnelEnds { .. } => 19,
        Event::TunnelDied => 20,
        Event::StartDue => 21,
        Event::TunnelStarted => 22,
        Event::Delivered => 23,
        Event::EngineEnded(_) => 24,
    }
}

/// Events that change nothing in a state, but for the expected ones.
fn ignores_all_but(state: &State, expected: &[Event]) {
    for event in every_event() {
        if !expected.contains(&event) {
            let unchanged = (state.clone(), Vec::new());
            assert_eq!(on(state, event.clone()), unchanged, "{event:?}");
        }
    }
}

fn remains() -> Remains {
    Remains {
        hooks_begun: false,
        is_up: false,
        has_config: true,
        keeps_kill_switch: false,
        was_closed_early: false,
    }
}
