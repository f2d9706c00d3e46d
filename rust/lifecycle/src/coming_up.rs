//! Coming up: takes step after step, each once the one before is done.

use crate::{
    ComingUp, Down, Effect, Ending, Event, Former, Found, GoingDown, Interruption, KillSwitch,
    Moment, Reaction, Remains, Start, State, Step, Up, state::Place,
};

impl ComingUp {
    pub(crate) fn begin(start: Start) -> Reaction {
        let steps = match start {
            Start::Host { .. } => vec![Step::FindTunnel],
            Start::Rootless => vec![Step::StartTunnel, Step::TellCaller],
        };
        Self {
            start,
            steps: steps.into(),
            found: Found::default(),
            remains: Remains {
                hooks_begun: false,
                is_up: false,
                has_config: true,
                keeps_kill_switch: false,
                was_closed_early: false,
            },
            ending: None,
        }
        .next()
    }

    pub(crate) fn on(mut self, event: Event) -> Reaction {
        let effect = match event {
            Event::Done(_) => return self.next(),
            Event::Found(found) => return self.found(found),
            Event::WgQuickHasIt(switch) => return self.wg_quick_has_it(switch),
            Event::Failed { tunnel_runs, .. } => return self.failed(tunnel_runs),
            Event::Down => return self.interrupted(Interruption::Client),
            Event::Signal(signal) => return self.interrupted(Interruption::Signal(signal)),
            Event::CallerLeft => return self.interrupted(Interruption::CallerLeft),
            Event::TunnelEnds {
                reason,
                kill_switch: KillSwitch::Off,
            } => {
                self.ending = Some(Ending::Tunnel(reason));
                None
            }
            Event::TunnelEnds { reason, .. } => Some(Effect::NoteReason(reason)),
            event => event.of_process(),
        };
        (State::ComingUp(self), effect.into_iter().collect())
    }

    /// Plans all further steps.
    fn found(mut self, found: Found) -> Reaction {
        self.found = found;
        match found.tunnel {
            Some(former) => {
                self.remains.hooks_begun = found.hooks_begun;
                self.remains.is_up = found.is_up;
                self.steps.push_back(Step::TakeOver);
                // After that: the former process refuses what it cannot do, and goes on.
                let is_other = former == Former::OtherVersion;
                self.steps.extend(is_other.then_some(Step::ReplaceProcess));
            }
            None => {
                let hooks_are_left = found.is_up || found.hooks_begun;
                self.steps.push_back(Step::FreeName);
                self.steps.extend(hooks_are_left.then_some(Step::UndoHooks));
                self.steps.push_back(Step::NoteStart);
                self.plan_hooks(Moment::PreUp);
                self.steps.push_back(Step::StartTunnel);
            }
        }
        self.steps.push_back(Step::SetUpHost);
        if !self.remains.is_up {
            self.plan_hooks(Moment::PostUp);
            self.steps.push_back(Step::NoteUp);
        }
        self.steps.extend([Step::FindThisMachine, Step::TellCaller]);
        self.next()
    }

    fn plan_hooks(&mut self, moment: Moment) {
        if !matches!(
            self.start,
            Start::Host {
                has_hooks: true,
                ..
            }
        ) {
            return;
        }
        let is_noted = self.remains.hooks_begun || self.steps.contains(&Step::NoteHooks);
        self.steps.extend((!is_noted).then_some(Step::NoteHooks));
        self.steps.push_back(Step::Hooks(moment));
        // Hooks may give the tunnel its key.
        let may_change = moment == Moment::PostUp;
        self.steps.extend(may_change.then_some(Step::NoteChanges));
    }

    /// Closes the kill switch before the other tunnel goes.
    fn wg_quick_has_it(mut self, switch: KillSwitch) -> Reaction {
        self.remains.was_closed_early = switch == KillSwitch::On;
        self.steps.push_front(Step::TakeFromWgQuick);
        if switch != KillSwitch::Off {
            self.steps.push_front(Step::CloseKillSwitch);
        }
        self.next()
    }

    fn next(mut self) -> Reaction {
        let Some(step) = self.steps.pop_front() else {
            let place = self.place();
            return match self.ending {
                Some(ending) => place.end(ending),
                None => (State::Up(Up::new(place)), Vec::new()),
            };
        };
        // A note that could not be written may still be there.
        match step {
            Step::NoteHooks => self.remains.hooks_begun = true,
            Step::NoteUp => self.remains.is_up = true,
            _ => {}
        }
        (State::ComingUp(self), vec![Effect::Step(step)])
    }

    /// Leaves what was there before: a tunnel that runs, and a closed kill switch in any case.
    fn failed(self, tunnel_runs: bool) -> Reaction {
        if self.found.tunnel.is_some() && tunnel_runs {
            let down = Down {
                ending: Ending::LeftRunning,
                failures: Vec::new(),
                notes: Vec::new(),
            };
            return (State::Down(down), Vec::new());
        }
        let keeps_kill_switch = match self.start {
            Start::Host {
                is_kill_switch_closed,
                ..
            } => is_kill_switch_closed,
            Start::Rootless => false,
        };
        self.undo(Ending::NotUp { keeps_kill_switch }, keeps_kill_switch)
    }

    fn interrupted(self, interruption: Interruption) -> Reaction {
        self.undo(Ending::Interrupted(interruption), false)
    }

    fn undo(self, ending: Ending, keeps_kill_switch: bool) -> Reaction {
        match self.place() {
            Place::Rootless => GoingDown::begin_rootless(ending),
            Place::Host => {
                let remains = Remains {
                    keeps_kill_switch,
                    ..self.remains
                };
                GoingDown::begin(ending, remains)
            }
        }
    }

    fn place(&self) -> Place {
        match self.start {
            Start::Host { .. } => Place::Host,
            Start::Rootless => Place::Rootless,
        }
    }
}
