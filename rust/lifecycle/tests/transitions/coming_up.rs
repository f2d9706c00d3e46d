//! From the start to up.

use convoy_lifecycle::{
    Down, Effect, Ending, Event, Former, Found, Interruption, KillSwitch, Moment, Start, State,
    Step,
};

use crate::{HOST, always_done, done, ends, failed, ignores_all_but, on, up, walk};

const FRESH: [Step; 12] = [
    Step::FindTunnel,
    Step::FreeName,
    Step::NoteStart,
    Step::NoteHooks,
    Step::Hooks(Moment::PreUp),
    Step::StartTunnel,
    Step::SetUpHost,
    Step::Hooks(Moment::PostUp),
    Step::NoteChanges,
    Step::NoteUp,
    Step::FindThisMachine,
    Step::TellCaller,
];

const WITHOUT_HOOKS: Start = Start::Host {
    has_hooks: false,
    is_kill_switch_closed: false,
};

fn steps(start: Start, found: Found) -> Vec<Step> {
    let (state, steps) = walk(State::coming_up(start), always_done(found));
    assert!(state.is_up());
    steps
}

/// Starts, and goes on until `last` is in hand.
fn up_to(start: Start, found: Found, last: Step) -> State {
    let (mut state, mut effects) = State::coming_up(start);
    let answer = always_done(found);
    while effects != [Effect::Step(last)] {
        let [Effect::Step(step)] = effects[..] else {
            panic!("{last:?} is not taken: {effects:?}");
        };
        (state, effects) = state.on(answer(step));
    }
    state
}

/// The steps down after an event.
fn undone(state: &State, event: Event) -> (Ending, Vec<Step>) {
    let (state, steps) = walk(on(state, event), |_| done());
    (state.ending().expect("it ends").clone(), steps)
}

#[test]
fn a_fresh_start_takes_one_step_after_the_other() {
    assert_eq!(steps(HOST, Found::default()), FRESH);
    let without: Vec<_> = FRESH
        .into_iter()
        .filter(|it| !matches!(it, Step::NoteHooks | Step::Hooks(_) | Step::NoteChanges))
        .collect();
    assert_eq!(steps(WITHOUT_HOOKS, Found::default()), without);
    assert_eq!(
        steps(Start::Rootless, Found::default()),
        [Step::StartTunnel, Step::TellCaller]
    );
}

#[test]
fn hooks_of_a_killed_tunnel_are_undone_before_another_start_is_noted() {
    for (hooks_begun, is_up) in [(true, false), (false, true), (true, true)] {
        let found = Found {
            hooks_begun,
            is_up,
            tunnel: None,
        };
        let mut expected = FRESH.to_vec();
        expected.insert(2, Step::UndoHooks);
        assert_eq!(steps(HOST, found), expected);
    }
}

#[test]
fn a_tunnel_that_runs_is_taken_over_and_only_what_is_missing_is_done() {
    let found = |hooks_begun, is_up, former| Found {
        tunnel: Some(former),
        hooks_begun,
        is_up,
    };
    let (same, other) = (Former::SameVersion, Former::OtherVersion);
    let end = [Step::FindThisMachine, Step::TellCaller];
    let begin = [Step::FindTunnel, Step::TakeOver];
    let post_up = [Step::Hooks(Moment::PostUp), Step::NoteChanges, Step::NoteUp];
    for (found, expected) in [
        (found(true, true, same), vec![Step::SetUpHost]),
        (
            found(true, true, other),
            vec![Step::ReplaceProcess, Step::SetUpHost],
        ),
        (
            found(true, false, same),
            [&[Step::SetUpHost][..], &post_up].concat(),
        ),
        (
            found(false, false, same),
            [&[Step::SetUpHost, Step::NoteHooks][..], &post_up].concat(),
        ),
    ] {
        let expected = [&begin[..], &expected, &end].concat();
        assert_eq!(steps(HOST, found), expected);
    }
    let expected = [&begin[..], &[Step::SetUpHost, Step::NoteUp], &end].concat();
    assert_eq!(steps(WITHOUT_HOOKS, found(false, false, same)), expected);
}

#[test]
fn wg_quick_loses_its_tunnel_only_behind_a_closed_kill_switch() {
    for (switch, expected) in [
        (KillSwitch::Off, vec![Step::TakeFromWgQuick]),
        (
            KillSwitch::On,
            vec![Step::CloseKillSwitch, Step::TakeFromWgQuick],
        ),
        (
            KillSwitch::Persistent,
            vec![Step::CloseKillSwitch, Step::TakeFromWgQuick],
        ),
    ] {
        let answer = |step| match step {
            Step::FreeName => Event::WgQuickHasIt(switch),
            step => always_done(Found::default())(step),
        };
        let (state, steps) = walk(State::coming_up(HOST), answer);
        assert!(state.is_up());
        let mut all = FRESH.to_vec();
        all.splice(2..2, expected);
        assert_eq!(steps, all);

        // One that was closed for this is opened again, unless it is to last.
        let state = up_to(HOST, Found::default(), Step::FreeName);
        let (state, _) = on(&state, Event::WgQuickHasIt(switch));
        let (_, steps) = undone(&state, failed(false));
        let is_opened = steps.last() == Some(&Step::OpenKillSwitch);
        assert_eq!(is_opened, switch == KillSwitch::On, "{steps:?}");
    }
}

#[test]
fn a_start_that_fails_or_is_interrupted_at_any_step_undoes_what_may_be_there() {
    let end = |switch| {
        [
            Step::StopTunnel,
            Step::UndoHost {
                keeps_kill_switch: switch,
            },
        ]
    };
    let [pre_down, post_down] = [Moment::PreDown, Moment::PostDown].map(Step::Hooks);
    for is_kill_switch_closed in [false, true] {
        let start = Start::Host {
            has_hooks: true,
            is_kill_switch_closed,
        };
        for (at, step) in FRESH.into_iter().enumerate() {
            let state = up_to(start, Found::default(), step);
            let expected = |switch| {
                let is_up = at >= 9;
                let before = [pre_down, Step::Save, Step::NoteEnd];
                let before = before.into_iter().filter(|_| is_up);
                let hooks = [post_down].into_iter().filter(|_| at >= 3);
                let all = before.chain(end(switch)).chain(hooks);
                all.chain([Step::ForgetState]).collect::<Vec<_>>()
            };
            let keeps_kill_switch = is_kill_switch_closed;
            assert_eq!(
                undone(&state, failed(true)),
                (
                    Ending::NotUp { keeps_kill_switch },
                    expected(keeps_kill_switch)
                ),
                "{step:?}"
            );
            for (event, interruption) in [
                (Event::Down, Interruption::Client),
                (Event::Signal("SIGINT"), Interruption::Signal("SIGINT")),
                (Event::CallerLeft, Interruption::CallerLeft),
            ] {
                let ending = Ending::Interrupted(interruption);
                assert_eq!(undone(&state, event), (ending, expected(false)), "{step:?}");
            }
        }
    }
}

#[test]
fn a_failed_take_over_leaves_a_tunnel_that_runs_and_undoes_one_that_does_not() {
    let found = Found {
        tunnel: Some(Former::OtherVersion),
        hooks_begun: true,
        is_up: true,
    };
    for step in [Step::TakeOver, Step::ReplaceProcess, Step::SetUpHost] {
        let state = up_to(HOST, found, step);
        let left = Down {
            ending: Ending::LeftRunning,
            failures: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(on(&state, failed(true)), (State::Down(left), Vec::new()));
        let (ending, steps) = undone(&state, failed(false));
        assert!(matches!(ending, Ending::NotUp { .. }));
        assert_eq!(steps[0], Step::Hooks(Moment::PreDown));
        // Whoever interrupts it wants it down.
        let (ending, _) = undone(&state, Event::Down);
        assert_eq!(ending, Ending::Interrupted(Interruption::Client));
    }
}

#[test]
fn a_start_without_root_has_only_its_tunnel_to_stop() {
    let keeps_kill_switch = false;
    for step in [Step::StartTunnel, Step::TellCaller] {
        let state = up_to(Start::Rootless, Found::default(), step);
        let not_up = Ending::NotUp { keeps_kill_switch };
        assert_eq!(
            undone(&state, failed(true)),
            (not_up, vec![Step::StopTunnel])
        );
        let left = Ending::Interrupted(Interruption::CallerLeft);
        assert_eq!(
            undone(&state, Event::CallerLeft),
            (left, vec![Step::StopTunnel])
        );
    }
}

#[test]
fn a_tunnel_that_ends_while_hooks_run_goes_down_once_it_is_up() {
    let hook = Step::Hooks(Moment::PostUp);
    let state = up_to(HOST, Found::default(), hook);
    let (state, effects) = on(&state, ends(KillSwitch::Off));
    assert_eq!(effects, []);
    let (state, steps) = walk(on(&state, done()), |_| done());
    assert_eq!(steps[3], Step::TellCaller);
    assert_eq!(steps[4], Step::Hooks(Moment::PreDown));
    let ending = Ending::Tunnel("a reason".to_owned());
    assert_eq!(state.ending(), Some(&ending));

    // Without root, too.
    let state = up_to(Start::Rootless, Found::default(), Step::TellCaller);
    let (state, effects) = on(&state, ends(KillSwitch::Off));
    assert_eq!(effects, []);
    let down = (ending, vec![Step::StopTunnel]);
    assert_eq!(undone(&state, done()), down);
}

#[test]
fn a_start_that_fails_or_is_interrupted_after_its_tunnel_ended_says_so_instead() {
    let state = up_to(HOST, Found::default(), Step::Hooks(Moment::PostUp));
    let (state, _) = on(&state, ends(KillSwitch::Off));
    let keeps_kill_switch = false;
    let (ending, _) = undone(&state, failed(false));
    assert_eq!(ending, Ending::NotUp { keeps_kill_switch });
    let (ending, _) = undone(&state, Event::Down);
    assert_eq!(ending, Ending::Interrupted(Interruption::Client));
}

#[test]
fn events_of_the_process_are_answered_while_hooks_run() {
    let state = up_to(HOST, Found::default(), Step::Hooks(Moment::PostUp));
    let (id, fwmark) = (1, Some(2));
    let reason = "a reason".to_owned();
    for (event, effect) in [
        (ends(KillSwitch::On), Effect::NoteReason(reason)),
        (
            Event::MarkAsked { id, fwmark },
            Effect::FollowMark { id, fwmark },
        ),
        (Event::TunnelDied, Effect::NoteDeath),
        (Event::StartDue, Effect::StartAgain),
        (Event::TunnelStarted, Effect::ConfigureAgain),
    ] {
        assert_eq!(on(&state, event), (state.clone(), vec![effect]));
    }
}

#[test]
fn events_of_a_tunnel_that_is_up_change_nothing_before() {
    let state = up_to(HOST, Found::default(), Step::Hooks(Moment::PreUp));
    let (id, fwmark) = (1, Some(2));
    let expected = [
        done(),
        failed(false),
        Event::Down,
        Event::Signal("SIGTERM"),
        Event::CallerLeft,
        Event::MarkAsked { id, fwmark },
        ends(KillSwitch::Off),
        ends(KillSwitch::Persistent),
        Event::TunnelDied,
        Event::StartDue,
        Event::TunnelStarted,
        // Answers to earlier steps, which nobody gives twice.
        Event::Found(Found {
            tunnel: Some(Former::SameVersion),
            ..Found::default()
        }),
        Event::WgQuickHasIt(KillSwitch::On),
    ];
    ignores_all_but(&state, &expected);
    assert!(!state.is_serving() && state.ending().is_none());
    assert!(up(HOST).is_serving());
}
