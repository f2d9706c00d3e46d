//! Finds and keeps the path to one peer.

mod relay;
mod rounds;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_types::{Candidate, CandidateKind, WhyNotDirect, counters::DropReason};

use crate::{
    budget::{AnswerBudget, PeerBudget, ProbeBudget, take_probe},
    candidate::is_probeable,
    message::{Candidates, Message},
    offer::Offer,
    pair::{Pair, PathId},
};

/// How long the two try to meet, counted from the last news of the peer.
const MEETING_TIME: Duration = Duration::from_secs(15);
/// Pause after the first meeting in vain; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause between two meetings while there is data.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Time after which NATs have surely forgotten a flow that nobody kept.
const NAT_TIME: Duration = Duration::from_secs(120);
/// Two initiations of the peer within this time are no ordinary renewal of a session.
const INITIATIONS_WITHIN: Duration = Duration::from_secs(60);
/// Initiations in a row, without data or a reply, after which the path is taken to lead nowhere.
const MOST_INITIATIONS: u32 = 2;
/// Wait for a token of the budget.
const BETWEEN_PROBES: Duration = Duration::from_millis(20);
/// Most answers that wait to be sent.
const MAX_ANSWERS: usize = 16;

/// How a message of the peer arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the hub.
    Hub,
    /// Directly.
    Direct {
        /// Source address.
        remote: SocketAddr,
        /// Local address that it was sent to.
        local: Option<IpAddr>,
    },
    /// By this side's relay.
    Relay {
        /// The peer's address as the relay sees it.
        remote: SocketAddr,
    },
}

/// A message to be sealed in the session and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The message.
    pub message: Message,
    /// Where to send it.
    pub to: Origin,
}

/// A change of the path that data takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data goes to this address.
    Direct {
        /// The address.
        remote: SocketAddr,
        /// Local address to send from.
        local: Option<IpAddr>,
        /// How the address came to be known; [`CandidateKind::Relayed`] if a relay is on the path.
        kind: CandidateKind,
        /// Whether this side's relay carries the data.
        by_relay: bool,
    },
    /// Data goes by the hub.
    Hub(WhyNotDirect),
}

/// The side of a peer's path that is this machine's.
#[derive(Debug)]
pub struct Agent {
    /// A random number.
    seed: u64,
    offer: Offer,
    /// This side's own addresses, without the relay's.
    local: Vec<Candidate>,
    relay: relay::Relay,
    /// The generation of the peer's candidates.
    heard: Option<u64>,
    pairs: Vec<Pair>,
    /// The path that is up.
    path: Option<PathId>,
    why: WhyNotDirect,
    /// When the present meeting ends; `None` between meetings.
    meeting_until: Option<Duration>,
    has_asked: bool,
    has_session: bool,
    /// When the next meeting may begin.
    not_before: Duration,
    pause: Duration,
    keepalive: Option<Duration>,
    last_data: Duration,
    /// Until when a probe alone begins no meeting, as the path has just ended for want of data.
    rests_until: Duration,
    /// The number of packets on the path when last looked at.
    packets: u64,
    /// The peer's initiations in a row, the time of the last one and the number of packets then.
    initiations: (u32, Duration, u64),
    budget: PeerBudget,
    answers: VecDeque<Transmit>,
    answer_budget: AnswerBudget,
    /// The last change of the path that nobody has polled: only that matters.
    event: Option<Event>,
    /// The time of an offer by the hub and its receipt.
    pub hub_round_trip: Option<Duration>,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probes answered by the peer.
    pub probes_answered: u64,
}

impl Agent {
    /// An agent that waits for data. `seed`: a random number.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            offer: Offer::default(),
            local: Vec::new(),
            relay: relay::Relay::default(),
            heard: None,
            pairs: Vec::new(),
            path: None,
            why: WhyNotDirect::Idle,
            meeting_until: None,
            has_asked: false,
            has_session: false,
            not_before: Duration::ZERO,
            pause: FIRST_PAUSE,
            keepalive: None,
            last_data: Duration::ZERO,
            rests_until: Duration::ZERO,
            packets: 0,
            initiations: (0, Duration::ZERO, 0),
            budget: PeerBudget::default(),
            answers: VecDeque::new(),
            answer_budget: AnswerBudget::default(),
            event: None,
            hub_round_trip: None,
            probes_sent: 0,
            probes_answered: 0,
        }
    }

    /// Call when a packet for the peer goes by the hub. Returns whether a meeting begins: then see to it that there is
    /// a session, and call [`Self::handle_session`] if there is one already.
    #[must_use]
    pub fn want(&mut self, now: Duration) -> bool {
        self.last_data = now;
        let begins = self.path.is_none() && self.meeting_until.is_none() && now >= self.not_before;
        if begins {
            self.has_asked = false;
            self.has_session = false;
            self.enter_meeting(now);
        }
        begins
    }

    /// Call when there is a new session.
    pub fn handle_session(&mut self, now: Duration) {
        self.has_session = true;
        if self.meeting_until.is_none() {
            return;
        }
        self.meeting_until = Some(now + MEETING_TIME);
        if self.has_asked {
            return self.offer.resend(now);
        }
        self.has_asked = true;
        self.offer.renew(true, self.seed, now);
        self.begin_rounds(now);
    }

    /// Sets this side's candidates, and tells the peer if it has the former ones.
    pub fn set_local(&mut self, candidates: &[Candidate], now: Duration) {
        let source = self.path_pair().and_then(|pair| pair.source);
        let is_local = |list: &[Candidate]| list.iter().any(|it| Some(it.address.ip()) == source);
        if is_local(&self.local) && !is_local(candidates) {
            self.drop_path(WhyNotDirect::AddressVanished, now);
        }
        self.local = candidates.to_vec();
        self.tell_local(false, now);
    }

    /// Tells the peer this side's candidates if they have changed, and it has the former ones or `has_lost` one.
    fn tell_local(&mut self, has_lost: bool, now: Duration) {
        if !self.offer.set(&self.candidates()) {
            return;
        }
        if self.has_asked || self.path.is_some() || has_lost {
            self.offer.renew(false, self.seed, now);
            self.begin_rounds(now);
        }
    }

    /// Ends the pause between two meetings: call it when the network has changed.
    pub fn network_changed(&mut self, now: Duration) {
        self.not_before = self.not_before.min(now);
        self.pause = FIRST_PAUSE;
        self.look_again(now);
    }

    /// Handles a message of the peer. `may_probe` says which addresses the caller allows, beside [`is_probeable`].
    ///
    /// # Errors
    /// [`DropReason::InboundPathsRefused`] if the message comes from another address, or goes unanswered, as one of
    /// very many.
    pub fn handle_message(
        &mut self,
        message: Message,
        origin: Origin,
        may_probe: impl Fn(SocketAddr) -> bool,
        now: Duration,
    ) -> Result<(), DropReason> {
        let may_probe = |address| is_probeable(address) && may_probe(address);
        // The peer may have forged its source address: answers go nowhere that probes do not.
        if path_of(origin).is_some_and(|(from, _)| !may_probe(from.remote)) {
            return Err(DropReason::InboundPathsRefused);
        }
        let mut is_answered = true;
        if let Origin::Relay { .. } = origin {
            self.relay_was_used(now);
        }
        match message {
            Message::Candidates(candidates) => {
                let generation = candidates.generation;
                is_answered = self.answer(Message::Received { generation }, origin, now);
                if origin == Origin::Hub && candidates.is_request && self.is_news(generation) {
                    // So does a peer that has a path with its requests.
                    self.drop_path(WhyNotDirect::OneWay, now);
                }
                self.handle_candidates(candidates, may_probe, now);
            }
            Message::Received { generation } => {
                let round_trip = self.offer.received(generation, now);
                if origin == Origin::Hub {
                    self.hub_round_trip = round_trip.or(self.hub_round_trip);
                }
            }
            Message::Probe { id } => is_answered = self.take_probe(id, origin, now),
            Message::Leave => self.leave(now),
            Message::Reply { id, .. } => {
                if let Some((from, local)) = path_of(origin) {
                    self.handle_reply(id, from, local, now);
                }
            }
        }
        self.update_relay(now);
        match is_answered {
            true => Ok(()),
            false => Err(DropReason::InboundPathsRefused),
        }
    }

    /// Call after an authentic initiation of the peer. `packets`: the number of packets received on the path so far.
    pub fn handle_initiation(&mut self, is_by_hub: bool, packets: u64, now: Duration) {
        if is_by_hub {
            // A peer that has a path sends its handshakes there.
            return self.drop_path(WhyNotDirect::OneWay, now);
        }
        let (count, last, former) = self.initiations;
        let is_soon = now.saturating_sub(last) < INITIATIONS_WITHIN;
        let count = if is_soon && former == packets {
            count + 1
        } else {
            0
        };
        self.initiations = (count, now, packets);
        if count >= MOST_INITIATIONS {
            self.initiations.0 = 0;
            self.drop_path(WhyNotDirect::OneWay, now);
        }
    }

    /// Drops the path, if one is up: data goes by the hub, and the next packet begins a meeting.
    pub fn drop_path(&mut self, why: WhyNotDirect, now: Duration) {
        if self.path.take().is_none() {
            return;
        }
        self.pairs.iter_mut().for_each(Pair::doubt);
        self.search_ends();
        self.keepalive = None;
        self.why = why;
        self.not_before = now;
        self.pause = FIRST_PAUSE;
        self.meeting_until = None;
        self.has_asked = false;
        self.offer.stop();
        self.event = Some(Event::Hub(why));
    }

    /// Call when [`Self::poll_timeout`] has passed. `packets`: the number of packets on the path so far, both ways.
    pub fn handle_timeout(&mut self, packets: u64, now: Duration) {
        if let Some(due) = self.keepalive.take_if(|at| *at <= now) {
            match now - due < NAT_TIME {
                true => self.keep_path(packets, now),
                // The machine has slept, and NATs have forgotten.
                false => self.drop_path(WhyNotDirect::Idle, now),
            }
        }
        self.bury_path(now);
        if self.meeting_until.take_if(|at| *at <= now).is_some() {
            self.end_in_vain(now);
        }
        self.handle_relay_timeout(now);
    }

    /// Returns when to call [`Self::handle_timeout`] and [`Self::poll_transmit`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let probes = self.pairs.iter().filter_map(|pair| pair.next);
        let others = [
            self.offer.next,
            self.meeting_until,
            self.keepalive,
            self.poll_relay(),
        ];
        probes.chain(others.into_iter().flatten()).min()
    }

    /// The next message to send. `random` makes the numbers of probes; without one, none is sent.
    pub fn poll_transmit(
        &mut self,
        budget: &mut ProbeBudget,
        random: impl FnOnce() -> Option<u64>,
        now: Duration,
    ) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        if let Some(candidates) = self.offer.poll(now) {
            let path = self.path_pair().map(Self::address_of);
            return Some(Transmit {
                message: Message::Candidates(candidates),
                to: path.unwrap_or(Origin::Hub),
            });
        }
        let due = self
            .pairs
            .iter_mut()
            .filter(|pair| pair.next.is_some_and(|at| at <= now));
        let pair = due.min_by_key(|pair| pair.next)?;
        if !take_probe(&mut self.budget, budget, now) {
            pair.next = Some(now + BETWEEN_PROBES);
            return None;
        }
        let id = random();
        pair.probe_sent(id.unwrap_or_default(), now);
        self.probes_sent += 1;
        Some(Transmit {
            message: Message::Probe { id: id? },
            to: Self::address_of(pair),
        })
    }

    /// The next change of the path.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// Returns why there is no direct path; `None` if there is one.
    #[must_use]
    pub fn why_not_direct(&self) -> Option<WhyNotDirect> {
        self.path.is_none().then_some(self.why)
    }

    /// The pair of the path that is up.
    #[must_use]
    pub fn path_pair(&self) -> Option<&Pair> {
        let path = self.path?;
        self.pairs.iter().find(|pair| pair.id() == path)
    }

    /// All pairs.
    #[must_use]
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    fn address_of(pair: &Pair) -> Origin {
        let remote = pair.candidate.address;
        match pair.is_by_relay() {
            true => Origin::Relay { remote },
            false => Origin::Direct {
                remote,
                local: pair.source,
            },
        }
    }

    /// Answers a probe, and learns from it.
    /// Returns whether the probe was answered, if there was a way.
    fn take_probe(&mut self, id: u64, origin: Origin, now: Duration) -> bool {
        let Some((from, _)) = path_of(origin) else {
            return true;
        };
        // A relay without a channel to the peer carries no reply; the peer probes again.
        let has_way = self
            .find(from)
            .map_or(!from.by_relay, |pair| pair.is_ready());
        let observed = from.remote;
        let is_answered = !has_way || self.answer(Message::Reply { id, observed }, origin, now);
        self.handle_probe(from, now);
        is_answered
    }

    /// Drops the path and makes a pause, as the peer wants none.
    fn leave(&mut self, now: Duration) {
        self.drop_path(WhyNotDirect::NoAnswer, now);
        self.not_before = now + self.pause;
    }

    /// Returns whether there was room for the answer.
    fn answer(&mut self, message: Message, to: Origin, now: Duration) -> bool {
        let has_room = self.answers.len() < MAX_ANSWERS && self.answer_budget.take(now);
        if has_room {
            self.answers.push_back(Transmit { message, to });
        }
        has_room
    }

    fn enter_meeting(&mut self, now: Duration) {
        self.why = WhyNotDirect::Meeting;
        self.meeting_until = Some(now + MEETING_TIME);
        self.search_begins(now);
    }

    /// Ends a meeting without a path; the next one begins after a pause, if there is data then.
    fn end_in_vain(&mut self, now: Duration) {
        self.why = match () {
            () if !self.has_session => WhyNotDirect::NoAnswer,
            () if self.heard.is_none() => WhyNotDirect::NoCandidates,
            () if self.relay.is_slower_than_hub => WhyNotDirect::SlowerThanHub,
            () => WhyNotDirect::Unreachable,
        };
        self.not_before = now + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.has_asked = false;
        self.search_ends();
        self.offer.stop();
        self.pairs.iter_mut().for_each(Pair::doubt);
        self.event = Some(Event::Hub(self.why));
    }

    fn handle_candidates(
        &mut self,
        candidates: Candidates,
        may_probe: impl Fn(SocketAddr) -> bool,
        now: Duration,
    ) {
        self.has_session = true;
        if !self.is_news(candidates.generation) {
            return;
        }
        self.heard = Some(candidates.generation);
        let allowed = candidates
            .list
            .into_iter()
            .filter(|it| may_probe(it.address));
        self.replace_told(&allowed.collect::<Vec<_>>(), now);
        if candidates.is_request {
            self.offer.renew(false, self.seed, now);
        }
        if candidates.is_request || self.meeting_until.is_some() {
            self.continue_meeting(now);
        }
        if self.meeting_until.is_some() || self.path.is_some() {
            self.begin_rounds(now);
        }
    }

    /// Returns whether a generation is newer than the last one heard, or comes from a peer that has restarted.
    fn is_news(&self, generation: u64) -> bool {
        self.heard
            .is_none_or(|heard| generation >> 32 != heard >> 32 || generation > heard)
    }

    /// Gives the peer, which is there, more time to be met.
    fn continue_meeting(&mut self, now: Duration) {
        if self.path.is_none() {
            self.has_asked = true;
            self.enter_meeting(now);
        }
    }
}

/// The path by which a message came, and the local address that it was sent to; `None` if the hub carried it.
fn path_of(origin: Origin) -> Option<(PathId, Option<IpAddr>)> {
    match origin {
        Origin::Hub => None,
        Origin::Direct { remote, local } => Some((PathId::direct(remote), local)),
        Origin::Relay { remote } => Some((PathId::by_relay(remote), None)),
    }
}
