//! Going down: undoes everything, in the reverse order. A step that fails does not stop the rest.

use std::collections::VecDeque;

use crate::{Down, Effect, Ending, Event, GoingDown, Moment, Reaction, Remains, State, Step};

impl GoingDown {
    /// Begins to undo what a supervisor with root has made.
    pub(crate) fn begin(ending: Ending, remains: Remains) -> Reaction {
        let when = |wanted: bool, steps: &'static [Step]| match wanted {
            true => steps,
            false => &[],
        };
        let keeps_kill_switch = remains.keeps_kill_switch;
        let before = [Step::Hooks(Moment::PreDown), Step::Save, Step::NoteEnd];
        let before = before.into_iter().filter(|_| remains.is_up);
        let always = [Step::StopTunnel, Step::UndoHost { keeps_kill_switch }];
        let has_hooks = remains.is_up || remains.hooks_begun;
        // Without the configuration, as after a crash under systemd, which keeps credentials to the start, the next
        // `up` runs the hooks.
        let forgets = remains.has_config || !keeps_kill_switch;
        let after = [
            when(has_hooks, &[Step::Hooks(Moment::PostDown)]),
            when(forgets, &[Step::ForgetState]),
            when(remains.was_closed_early, &[Step::OpenKillSwitch]),
        ];
        let after = after.into_iter().flatten().copied();
        Self::with(ending, before.chain(always).chain(after).collect())
    }

    /// Begins to undo what a supervisor without root has made.
    pub(crate) fn begin_rootless(ending: Ending) -> Reaction {
        Self::with(ending, [Step::StopTunnel].into())
    }

    fn with(ending: Ending, steps: VecDeque<Step>) -> Reaction {
        Self {
            ending,
            steps,
            failures: Vec::new(),
            notes: Vec::new(),
        }
        .next()
    }

    pub(crate) fn on(mut self, event: Event) -> Reaction {
        let effect = match event {
            Event::Done(notes) => {
                self.notes.extend(notes);
                return self.next();
            }
            Event::Failed { reason, .. } => {
                self.failures.push(reason);
                return self.next();
            }
            // A tunnel that goes down needs no rules any more.
            Event::MarkAsked { id, fwmark } => Effect::AllowMark { id, fwmark },
            // Nothing more comes from it.
            Event::TunnelEnds { .. }
            | Event::TunnelDied
            | Event::StartDue
            | Event::TunnelStarted => Effect::FinishTunnel,
            _ => return (State::GoingDown(self), Vec::new()),
        };
        (State::GoingDown(self), vec![effect])
    }

    fn next(mut self) -> Reaction {
        match self.steps.pop_front() {
            Some(step) => (State::GoingDown(self), vec![Effect::Step(step)]),
            None => {
                let down = Down {
                    ending: self.ending,
                    failures: self.failures,
                    notes: self.notes,
                };
                (State::Down(down), Vec::new())
            }
        }
    }
}
