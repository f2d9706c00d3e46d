//! Up, paused and moved.

use convoy_lifecycle::{
    Effect, Ending, Event, KillSwitch, LONGEST_PAUSE, Moment, Refusal, Start, State, Step,
};

use crate::{HOST, done, ends, ignores_all_but, on, until, up, walk};

const SECONDS: u64 = 60;

fn begun() -> Event {
    Event::Paused {
        seconds: SECONDS,
        until: until(),
    }
}

fn paused() -> State {
    on(&up(HOST), begun()).0
}

fn moved(from: &State) -> State {
    let (state, effects) = on(from, Event::InterfaceMoved);
    assert_eq!(effects, [Effect::ReleaseHost]);
    assert!(state.has_moved());
    state
}

/// Effects of events that change none of the states.
fn of_all() -> Vec<(Event, Effect)> {
    let (id, fwmark) = (1, Some(2));
    vec![
        (Event::Request, Effect::Answer),
        (Event::Reload, Effect::Reload),
        (Event::Replace, Effect::Replace),
        (Event::WokeUp, Effect::LookAgain),
        (
            Event::InterfaceDeleted(KillSwitch::On),
            Effect::ReplaceInterface,
        ),
        (
            Event::MarkAsked { id, fwmark },
            Effect::FollowMark { id, fwmark },
        ),
        (Event::TunnelDied, Effect::NoteDeath),
        (Event::StartDue, Effect::StartAgain),
        (Event::TunnelStarted, Effect::ConfigureAgain),
    ]
}

/// Events that end a tunnel in any of the states.
fn endings() -> Vec<(Event, Ending)> {
    let reason = || "a reason".to_owned();
    vec![
        (Event::Down, Ending::Requested),
        (Event::Signal("SIGTERM"), Ending::Signal("SIGTERM")),
        (
            Event::InterfaceDeleted(KillSwitch::Off),
            Ending::InterfaceDeleted,
        ),
        (ends(KillSwitch::Off), Ending::Tunnel(reason())),
        (Event::Delivered, Ending::Delivered),
        (Event::EngineEnded(reason()), Ending::Failed(reason())),
    ]
}

/// Asserts the effects of events that leave a state as it is, its endings, and that it ignores all other events but
/// those that lead to another state.
fn behaves(
    state: &State,
    effects: Vec<(Event, Effect)>,
    ends: Vec<(Event, Ending)>,
    moves: Vec<Event>,
) {
    let stays: Vec<_> = of_all().into_iter().chain(effects).collect();
    let ends: Vec<_> = endings().into_iter().chain(ends).collect();
    let mut expected = Vec::new();
    for (event, effect) in stays {
        let reaction = (state.clone(), vec![effect]);
        assert_eq!(on(state, event.clone()), reaction, "{event:?}");
        expected.push(event);
    }
    for (event, ending) in ends {
        let (down, steps) = walk(on(state, event.clone()), |_| done());
        assert_eq!(down.ending(), Some(&ending), "{event:?}");
        let keeps_kill_switch = matches!(ending, Ending::Failed(_));
        assert_eq!(steps, all_steps(keeps_kill_switch), "{event:?}");
        expected.push(event);
    }
    expected.extend(moves);
    ignores_all_but(state, &expected);
}

fn all_steps(keeps_kill_switch: bool) -> Vec<Step> {
    vec![
        Step::Hooks(Moment::PreDown),
        Step::Save,
        Step::NoteEnd,
        Step::StopTunnel,
        Step::UndoHost { keeps_kill_switch },
        Step::Hooks(Moment::PostDown),
        Step::ForgetState,
    ]
}

fn asks() -> Event {
    Event::Pause { seconds: SECONDS }
}

fn survives_its_end() -> (Event, Effect) {
    let reason = "a reason".to_owned();
    (ends(KillSwitch::Persistent), Effect::NoteReason(reason))
}

#[test]
fn a_tunnel_that_is_up_reacts_to_every_event() {
    let effects = vec![
        (asks(), Effect::Pause { seconds: SECONDS }),
        (Event::Resume, Effect::Refuse(Refusal::NotPaused)),
        survives_its_end(),
    ];
    let moves = vec![begun(), Event::InterfaceMoved];
    behaves(&up(HOST), effects, vec![], moves);
}

#[test]
fn a_paused_tunnel_reacts_to_every_event() {
    let effects = vec![
        (asks(), Effect::Pause { seconds: SECONDS }),
        (Event::Resume, Effect::Resume),
        survives_its_end(),
    ];
    let ends = [Event::Resumed, Event::PauseOver];
    let moves = [&ends[..], &[begun(), Event::InterfaceMoved]].concat();
    behaves(&paused(), effects, vec![], moves);
}

#[test]
fn a_moved_tunnel_reacts_to_every_event_and_keeps_a_kill_switch_closed() {
    let reason = "a reason".to_owned();
    let ends = vec![(ends(KillSwitch::Persistent), Ending::Failed(reason))];
    for state in [moved(&up(HOST)), moved(&paused())] {
        let effects = vec![(asks(), Effect::Refuse(Refusal::HasMoved))];
        let not_paused = (Event::Resume, Effect::Refuse(Refusal::NotPaused));
        let is_paused = state.paused_until().is_some();
        let effects = effects
            .into_iter()
            .chain((!is_paused).then_some(not_paused));
        let moves = is_paused.then_some(Event::Resume).into_iter();
        behaves(&state, effects.collect(), ends.clone(), moves.collect());
    }
}

#[test]
fn a_pause_begins_once_the_host_is_open_and_ends_by_request_or_by_itself() {
    let noted = Effect::NotePause {
        seconds: SECONDS,
        until: until(),
    };
    for former in [up(HOST), paused()] {
        let (state, effects) = on(&former, begun());
        assert_eq!(effects, [noted.clone(), Effect::Confirm]);
        assert_eq!(state.paused_until(), Some(until()));
        assert!(state.is_serving() && !state.is_up());
    }
    let is_asked = true;
    let ended = vec![Effect::NoteResumed { is_asked }, Effect::Confirm];
    assert_eq!(on(&paused(), Event::Resumed), (up(HOST), ended));
    let is_asked = false;
    let over = vec![Effect::NoteResumed { is_asked }];
    assert_eq!(on(&paused(), Event::PauseOver), (up(HOST), over));
}

#[test]
fn a_pause_of_no_time_or_of_more_than_a_day_is_refused_wherever_one_is_asked_for() {
    let longest = LONGEST_PAUSE.as_secs();
    for state in [up(HOST), paused(), moved(&up(HOST))] {
        for (seconds, refusal) in [
            (0, Refusal::NoTime),
            (longest + 1, Refusal::TooLong),
            (u64::MAX, Refusal::TooLong),
        ] {
            let (same, effects) = on(&state, Event::Pause { seconds });
            assert_eq!(effects, [Effect::Refuse(refusal)]);
            assert_eq!(same, state);
        }
    }
    let (_, effects) = on(&up(HOST), Event::Pause { seconds: longest });
    assert_eq!(effects, [Effect::Pause { seconds: longest }]);
}

#[test]
fn a_pause_outlives_the_move_until_somebody_ends_it() {
    let state = moved(&paused());
    assert_eq!(state.paused_until(), Some(until()));
    let (state, effects) = on(&state, Event::Resume);
    let is_asked = true;
    assert_eq!(effects, [Effect::NoteResumed { is_asked }, Effect::Confirm]);
    assert_eq!(state, moved(&up(HOST)));
}

#[test]
fn a_tunnel_without_root_has_nothing_to_pause_and_only_its_processes_to_end() {
    let state = up(Start::Rootless);
    for event in [asks(), Event::Resume] {
        let refused = vec![Effect::Refuse(Refusal::NothingToPause)];
        assert_eq!(on(&state, event), (state.clone(), refused));
    }
    let mut expected = vec![asks(), Event::Resume];
    for (event, effect) in of_all().into_iter().chain([survives_its_end()]) {
        assert_eq!(on(&state, event.clone()), (state.clone(), vec![effect]));
        expected.push(event);
    }
    for (event, ending) in endings() {
        let (down, steps) = walk(on(&state, event.clone()), |_| done());
        assert_eq!(down.ending(), Some(&ending));
        assert_eq!(steps, [Step::StopTunnel]);
        expected.push(event);
    }
    ignores_all_but(&state, &expected);
}
