//! From the end of a tunnel to down.

use convoy_lifecycle::{
    Down, Effect, Ending, Event, Interruption, KillSwitch, Moment, Remains, State, Step,
};

use crate::{HOST, done, ends, every_event, failed, ignores_all_but, on, remains, up, walk};

fn steps(remains: Remains) -> Vec<Step> {
    let (state, steps) = walk(State::going_down(remains), |_| done());
    let down = Down {
        ending: Ending::Requested,
        failures: Vec::new(),
        notes: Vec::new(),
    };
    assert_eq!(state, State::Down(down));
    steps
}

#[test]
fn remains_of_a_dead_supervisor_are_undone_as_far_as_they_reach() {
    let [pre_down, post_down] = [Moment::PreDown, Moment::PostDown].map(Step::Hooks);
    for number in 0..32_u8 {
        let is = |bit: u8| number & (1 << bit) != 0;
        let remains = Remains {
            hooks_begun: is(0),
            is_up: is(1),
            has_config: is(2),
            keeps_kill_switch: is(3),
            was_closed_early: is(4),
        };
        let keeps_kill_switch = remains.keeps_kill_switch;
        let all = [
            (pre_down, remains.is_up),
            (Step::Save, remains.is_up),
            (Step::NoteEnd, remains.is_up),
            (Step::StopTunnel, true),
            (Step::UndoHost { keeps_kill_switch }, true),
            (post_down, remains.is_up || remains.hooks_begun),
            (Step::ForgetState, is(2) || !is(3)),
            (Step::OpenKillSwitch, is(4)),
        ];
        let expected = all.into_iter().filter(|(_, is_due)| *is_due);
        let expected: Vec<_> = expected.map(|(step, _)| step).collect();
        assert_eq!(steps(remains), expected, "{remains:?}");
    }
}

#[test]
fn a_step_that_fails_stops_none_of_the_others() {
    let is_up = true;
    let all = steps(Remains { is_up, ..remains() });
    let begin = || State::going_down(Remains { is_up, ..remains() });
    let (state, taken) = walk(begin(), |_| failed(false));
    assert_eq!(taken, all);
    let State::Down(down) = state else {
        panic!("{state:?}");
    };
    let failures = vec!["it broke"; all.len()];
    assert_eq!(down.outcome(), Err(failures.join("\n")));

    let answer = |step| match step {
        Step::Save => Event::Done(vec!["saved".to_owned()]),
        Step::StopTunnel => failed(false),
        _ => done(),
    };
    let (state, taken) = walk(begin(), answer);
    assert_eq!(taken, all);
    let State::Down(down) = state else {
        panic!("{state:?}");
    };
    assert_eq!(down.outcome(), Err("it broke\nsaved".to_owned()));
}

#[test]
fn notes_of_an_end_without_failures_are_its_outcome() {
    let note = |_| Event::Done(vec!["a note".to_owned()]);
    let (state, steps) = walk(State::going_down(remains()), note);
    let State::Down(down) = state else {
        panic!("{state:?}");
    };
    assert_eq!(down.outcome(), Ok(vec!["a note".to_owned(); steps.len()]));
}

#[test]
fn a_tunnel_that_goes_down_may_have_any_mark_and_gets_no_further_process() {
    let (state, _) = on(&up(HOST), Event::Down);
    let (id, fwmark) = (1, Some(2));
    let asked = Event::MarkAsked { id, fwmark };
    let allowed = vec![Effect::AllowMark { id, fwmark }];
    assert_eq!(on(&state, asked.clone()), (state.clone(), allowed));
    let finishes = [
        ends(KillSwitch::Off),
        ends(KillSwitch::Persistent),
        Event::TunnelDied,
        Event::StartDue,
        Event::TunnelStarted,
    ];
    for event in &finishes {
        let finished = vec![Effect::FinishTunnel];
        assert_eq!(on(&state, event.clone()), (state.clone(), finished));
    }
    let expected = [&finishes[..], &[asked, done(), failed(false)]].concat();
    ignores_all_but(&state, &expected);
}

#[test]
fn nothing_happens_to_a_tunnel_that_is_down() {
    let (state, _) = walk(State::going_down(remains()), |_| done());
    for event in every_event() {
        assert_eq!(on(&state, event), (state.clone(), vec![]));
    }
}

#[test]
fn an_ending_is_put_into_words() {
    let reason = || "why".to_owned();
    for (ending, words) in [
        (Ending::Requested, "as requested"),
        (Ending::Signal("SIGTERM"), "SIGTERM"),
        (Ending::Delivered, "the last command has ended"),
        (Ending::Tunnel(reason()), "the tunnel ended (why)"),
        (Ending::InterfaceDeleted, "the interface was deleted"),
        (Ending::Failed(reason()), "it failed (why)"),
    ] {
        assert_eq!(ending.to_string(), words);
        assert!(!ending.is_of_start());
    }
    let keeps_kill_switch = false;
    for (ending, words) in [
        (
            Ending::Interrupted(Interruption::Client),
            "interrupted by `convoy down`",
        ),
        (
            Ending::Interrupted(Interruption::Signal("SIGINT")),
            "interrupted by SIGINT",
        ),
        (
            Ending::Interrupted(Interruption::CallerLeft),
            "the command is gone",
        ),
        (Ending::NotUp { keeps_kill_switch }, "it did not come up"),
        (Ending::LeftRunning, "it did not come up"),
    ] {
        assert_eq!(ending.to_string(), words);
        assert!(ending.is_of_start());
    }
}
