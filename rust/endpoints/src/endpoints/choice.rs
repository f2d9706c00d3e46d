//! The address that one peer uses.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use convoy_config::{Endpoint, Host};

/// Initiations without an answer, 5 s each, that lead to the next address.
const PATIENCE: u32 = 3;
/// Longest time between two unanswered initiations of one handshake.
const SAME_HANDSHAKE: Duration = Duration::from_secs(20);
/// How long a peer serves at another than its preferred address before that is tried again: a little less than the
/// time between two handshakes. It doubles with each trial in vain.
const FIRST_PAUSE: Duration = Duration::from_secs(115);
/// Longest time before a preferred address is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The choice among the addresses of one peer.
#[derive(Debug)]
pub(super) struct Choice {
    /// In order of preference; not empty.
    pub(super) endpoints: Vec<Endpoint>,
    /// Their addresses as far as known, in the same order, each once.
    candidates: Vec<SocketAddr>,
    current: Option<SocketAddr>,
    state: State,
    /// Whether no name has been found since the start or the last change of the network.
    is_fresh: bool,
    /// Initiations without an answer in a row, and the time of the last.
    unanswered: u32,
    last_unanswered: Option<Instant>,
    /// When to try the preferred address again.
    next_trial: Option<Instant>,
    pause: Duration,
}

/// State of the address in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Untried,
    /// The last handshake was answered.
    Answers,
    /// The last initiation was not answered.
    Fails,
    /// Nothing, and there is another one that answers.
    Trial { former: SocketAddr },
}

/// A step that follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    /// There is another address; a handshake is in progress, or will begin with the next packet.
    Move,
    /// There is another address. A handshake must begin: the session belongs to the former address, and data alone
    /// would not show that this one is dead.
    MoveAndShakeHands,
}

impl Choice {
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            candidates: Vec::new(),
            current: None,
            state: State::Untried,
            is_fresh: true,
            unanswered: 0,
            last_unanswered: None,
            next_trial: None,
            pause: FIRST_PAUSE,
        }
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.current
    }

    /// Returns whether there may be more than one address.
    pub(super) fn may_change(&self) -> bool {
        let is_name = |endpoint: &Endpoint| matches!(endpoint.host, Host::Name(_));
        self.endpoints.len() > 1 || self.endpoints.iter().any(is_name)
    }

    /// Takes the addresses that are known now. `is_found`: whether a name has just been found.
    pub(super) fn update(&mut self, candidates: Vec<SocketAddr>, is_found: bool) -> Step {
        self.take(candidates);
        let was_fresh = self.is_fresh;
        self.is_fresh &= !is_found;
        let is_left = self.current.is_none_or(|it| !self.candidates.contains(&it));
        match self.state {
            State::Untried => self.move_to_first(Step::Move),
            State::Fails if is_left => self.move_to_first(Step::Move),
            State::Answers if is_left && was_fresh => {
                self.state = State::Untried;
                self.move_to_first(Step::MoveAndShakeHands)
            }
            // It serves, although the name server now prefers others.
            State::Fails | State::Answers | State::Trial { .. } => Step::Stay,
        }
    }

    /// Goes back to the preferred address: nothing is known of any.
    pub(super) fn start_over(&mut self, candidates: Vec<SocketAddr>) {
        self.take(candidates);
        self.state = State::Untried;
        self.is_fresh = true;
        self.unanswered = 0;
        self.next_trial = None;
        self.pause = FIRST_PAUSE;
        self.move_to_first(Step::Move);
    }

    pub(super) fn handle_answered(&mut self, now: Instant) -> Step {
        if let State::Trial { .. } = self.state {
            self.pause = FIRST_PAUSE;
        }
        self.state = State::Answers;
        self.unanswered = 0;
        let (Some(preferred), Some(former)) = (self.candidates.first().copied(), self.current)
        else {
            return Step::Stay;
        };
        if former == preferred {
            self.next_trial = None;
            return Step::Stay;
        }
        let at = *self.next_trial.get_or_insert(now + self.pause);
        if now < at {
            return Step::Stay;
        }
        self.state = State::Trial { former };
        self.move_to(Some(preferred), Step::MoveAndShakeHands)
    }

    pub(super) fn handle_unanswered(&mut self, now: Instant) -> Step {
        let last = self.last_unanswered.replace(now);
        if last.is_none_or(|last| now.saturating_duration_since(last) > SAME_HANDSHAKE) {
            self.unanswered = 0;
        }
        let state = std::mem::replace(&mut self.state, State::Fails);
        if let State::Trial { former } = state {
            self.unanswered = 0;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            self.next_trial = Some(now + self.pause);
            return self.move_to(Some(former), Step::Move);
        }
        self.unanswered += 1;
        if self.unanswered < PATIENCE {
            return Step::Stay;
        }
        self.unanswered = 0;
        self.next_trial = None;
        let at = self
            .candidates
            .iter()
            .position(|it| Some(*it) == self.current);
        let next = at.map_or(0, |at| at + 1) % self.candidates.len().max(1);
        self.move_to(self.candidates.get(next).copied(), Step::Move)
    }

    fn take(&mut self, candidates: Vec<SocketAddr>) {
        self.candidates.clear();
        for candidate in candidates {
            if !self.candidates.contains(&candidate) {
                self.candidates.push(candidate);
            }
        }
    }

    fn move_to_first(&mut self, step: Step) -> Step {
        self.move_to(self.candidates.first().copied(), step)
    }

    /// Without an address, stays where it is.
    fn move_to(&mut self, address: Option<SocketAddr>, step: Step) -> Step {
        if address.is_none() || address == self.current {
            return Step::Stay;
        }
        self.current = address;
        step
    }
}
