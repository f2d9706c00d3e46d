//! Rounds of probes: pairs are made, probed, and one of them becomes the path.

use std::{net::IpAddr, time::Duration};

use convoy_types::{Candidate, CandidateKind, WhyNotDirect};

use super::{Agent, Event, FIRST_PAUSE};
use crate::{
    pair::{DIRECT_PAIRS, MAX_CHANNELS, MAX_LEARNT, MAX_LEARNT_BY_RELAY, Pair, PathId},
    rank::{beats_hub, is_better, is_relayed, may_be_better, rank},
};

/// Time between probes that keep NATs on the path open: they forget a flow after 30 s or more.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Time without data after which a path ends.
const IDLE_TIME: Duration = Duration::from_secs(300);

impl Agent {
    /// Replaces the candidates that the peer has told, but for the one of the path. A relay that the peer no longer has
    /// ends its path.
    pub(super) fn replace_told(&mut self, told: &[Candidate], now: Duration) {
        let is_told = |address| told.iter().any(|it| it.address == address);
        if let Some(path) = self.path_pair().map(|pair| pair.candidate)
            && path.kind == CandidateKind::Relayed
            && !is_told(path.address)
        {
            self.drop_path(WhyNotDirect::RelayLost, now);
        }
        let path = self.path;
        self.pairs.retain(|pair| {
            let Candidate { kind, address } = pair.candidate;
            is_told(address) || kind == CandidateKind::Learnt || path == Some(pair.id())
        });
        for candidate in told {
            let direct = self.pairs.iter().filter(|pair| !pair.is_by_relay()).count();
            if let Some(known) = self.find(PathId::direct(candidate.address)) {
                let kind = &mut known.candidate.kind;
                // Probes may arrive from a relay before the peer has said that it is one.
                *kind = match candidate.kind {
                    CandidateKind::Relayed => CandidateKind::Relayed,
                    told => told.min(*kind),
                };
            } else if direct < DIRECT_PAIRS {
                self.pairs.push(Pair::new(*candidate));
            }
        }
    }

    /// Probes all pairs that may be better than the path, and the path itself.
    pub(super) fn begin_rounds(&mut self, now: Duration) {
        let path = self.path_pair().cloned();
        for pair in &mut self.pairs {
            match &path {
                None => pair.begin(now),
                Some(path) if path.id() == pair.id() => pair.again(now),
                Some(path) if may_be_better(pair, path, now) => pair.begin(now),
                Some(_) => pair.next = None,
            }
        }
    }

    /// Learns from the source of an authentic probe.
    pub(super) fn handle_probe(&mut self, from: PathId, now: Duration) {
        let is_resting = now < self.rests_until && self.meeting_until.is_none();
        if is_resting && self.path.is_none() {
            return;
        }
        self.continue_meeting(now);
        let path = self.path_pair().cloned();
        if let Some(pair) = self.find(from) {
            match path {
                // The peer's NAT has just been opened from inside.
                None if !pair.has_answered() => match pair.next {
                    Some(at) => pair.next = Some(at.min(now)),
                    None => pair.begin(now),
                },
                Some(path) if path.id() != from => {
                    if may_be_better(pair, &path, now) {
                        pair.keep(now);
                    }
                    self.keep_pair(path.id(), now);
                }
                _ => {}
            }
            return;
        }
        let Some(pair) = self.learn(from) else {
            return;
        };
        if path
            .as_ref()
            .is_none_or(|path| may_be_better(pair, path, now))
        {
            pair.begin(now);
        }
        // Perhaps the peer has moved. Only a silent path gives way to its equal.
        if let Some(path) = self.path
            && let Some(path) = self.find(path)
        {
            path.again(now);
        }
    }

    /// Adds a learnt candidate, in place of the oldest if there are many; none that the relay cannot reach.
    fn learn(&mut self, id: PathId) -> Option<&mut Pair> {
        if id.by_relay && !self.relay_reaches(id.remote) {
            return None;
        }
        let (most_learnt, most) = match id.by_relay {
            true => (MAX_LEARNT_BY_RELAY, MAX_CHANNELS),
            false => (MAX_LEARNT, DIRECT_PAIRS),
        };
        let path = self.path;
        let is_alike = |pair: &&Pair| pair.is_by_relay() == id.by_relay;
        let is_learnt = |pair: &Pair| pair.candidate.kind == CandidateKind::Learnt;
        let alike = self.pairs.iter().filter(is_alike);
        let learnt = alike.clone().filter(|pair| is_learnt(pair)).count();
        if learnt >= most_learnt || alike.count() >= most {
            let is_replaceable =
                |pair: &Pair| is_alike(&pair) && is_learnt(pair) && path != Some(pair.id());
            let oldest = self.pairs.iter().position(is_replaceable)?;
            self.pairs.remove(oldest);
        }
        let candidate = Candidate {
            kind: CandidateKind::Learnt,
            address: id.remote,
        };
        self.pairs.push(match id.by_relay {
            true => Pair::by_relay(candidate),
            false => Pair::new(candidate),
        });
        self.pairs.last_mut()
    }

    /// Takes the pair that has answered, if it is the first or better than the path.
    pub(super) fn handle_reply(
        &mut self,
        probe: u64,
        from: PathId,
        local: Option<IpAddr>,
        now: Duration,
    ) {
        let path = self.path_pair().cloned();
        let hub = self.hub_round_trip;
        let Some(pair) = self.find(from) else {
            return;
        };
        if !pair.replied(probe, local, now) {
            return;
        }
        let is_taken = match &path {
            None => beats_hub(pair, hub),
            Some(path) => path.id() != from && is_better(pair, path, now),
        };
        let is_slower_than_hub = path.is_none() && !is_taken;
        if is_slower_than_hub {
            pair.go_on(now);
        }
        let new = is_taken.then(|| pair.clone());
        self.relay.is_slower_than_hub |= is_slower_than_hub;
        self.probes_answered += 1;
        self.budget.give_back();
        self.initiations.0 = 0;
        if let Some(new) = new {
            self.take_path(&new, now);
        }
    }

    fn take_path(&mut self, new: &Pair, now: Duration) {
        if self.path.is_none() {
            self.last_data = now;
        }
        self.path = Some(new.id());
        self.meeting_until = None;
        if !is_relayed(new) {
            self.pause = FIRST_PAUSE;
        }
        self.keepalive = Some(now + KEEPALIVE);
        for pair in &mut self.pairs {
            let is_worse = rank(pair) > rank(new);
            pair.next = pair.next.filter(|_| !is_worse);
        }
        self.event = Some(Event::Direct {
            remote: new.candidate.address,
            local: new.source,
            kind: new.kind(),
            by_relay: new.is_by_relay(),
        });
    }

    /// Keeps the path open while there is data, and ends it some minutes after the last.
    pub(super) fn keep_path(&mut self, packets: u64, now: Duration) {
        if packets != self.packets {
            self.packets = packets;
            self.last_data = now;
        }
        if now.saturating_sub(self.last_data) >= IDLE_TIME {
            self.drop_path(WhyNotDirect::Idle, now);
            // The peer's path may outlive this one by a keepalive.
            self.rests_until = now + 2 * KEEPALIVE;
            return;
        }
        self.keepalive = Some(now + KEEPALIVE);
        let Some(pair) = self.path.and_then(|path| self.find(path)) else {
            return;
        };
        match is_relayed(pair) {
            true => pair.again(now),
            false => pair.keep(now),
        }
    }

    /// Drops a relayed path that has died.
    pub(super) fn bury_path(&mut self, now: Duration) {
        let is_dead = |pair: &Pair| is_relayed(pair) && pair.is_dead(now);
        if self.path_pair().is_some_and(is_dead) {
            self.drop_path(WhyNotDirect::Unanswered, now);
        }
    }

    fn keep_pair(&mut self, id: PathId, now: Duration) {
        if let Some(pair) = self.find(id) {
            pair.keep(now);
        }
    }

    pub(super) fn find(&mut self, id: PathId) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| pair.id() == id)
    }
}
