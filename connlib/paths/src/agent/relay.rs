//! This side's relay, the last way to a peer: when it is needed, and which addresses it is to reach.
//!
//! It is asked for when nothing else has answered for a while, and given back soon after its last need. Each address of
//! the peer then gets one further pair, by the relay's address of the same family. Such a pair is probed once the relay
//! has a channel to the address. A peer that names many addresses gets channels to a few, and to new ones slowly.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use convoy_types::{Candidate, CandidateKind, WhyNotDirect};

use super::{Agent, FIRST_PAUSE, LONGEST_PAUSE};
use crate::{
    budget::ChannelBudget,
    message::MAX_CANDIDATES,
    pair::{MAX_CHANNELS, MAX_LEARNT_BY_RELAY, Pair, PathId, Reach},
    rank::{is_relayed, may_be_better},
};

/// Time of looking in vain after which the relay is asked for.
const IN_VAIN: Duration = Duration::from_secs(2);
/// Time after its last need for which the relay is kept.
const KEPT: Duration = Duration::from_secs(30);
/// Most addresses told by the peer that the relay reaches; the others are learnt.
const MAX_TOLD: usize = MAX_CHANNELS - MAX_LEARNT_BY_RELAY;

/// This side's relay, as far as one peer needs it.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Whether there is one to ask for.
    is_there: bool,
    /// Its addresses for this side, one of each family at most, while it has given some.
    addresses: Vec<SocketAddr>,
    /// When to ask for it; `None` if nothing is looked for, or it has been asked for.
    ask_at: Option<Duration>,
    /// Whether the peer has been looked for in vain.
    is_last_hope: bool,
    /// Whether a path with a relay was found in this meeting, but the hub is faster.
    pub(super) is_slower_than_hub: bool,
    /// When it is no longer needed; `None` if it is not.
    needed_until: Option<Duration>,
    budget: ChannelBudget,
    /// When to ask for the next channel.
    next_channel: Option<Duration>,
    /// When to look again for a path without a relay.
    look_again: Option<Duration>,
}

impl Agent {
    /// Says whether there is a relay that may be asked for; at first there is none.
    pub fn allow_relay(&mut self, is_there: bool, now: Duration) {
        self.relay.is_there = is_there;
        if !is_there {
            self.relay.needed_until = None;
            let _ = self.set_relay(&[], now);
        }
    }

    /// Returns whether the relay is to be asked for an address, and kept.
    #[must_use]
    pub fn wants_relay(&self) -> bool {
        self.relay.needed_until.is_some()
    }

    /// The addresses of the peer that the relay is to have channels to, [`MAX_CHANNELS`] at most; that of the path comes
    /// first.
    pub fn relay_peers(&self) -> impl Iterator<Item = SocketAddr> {
        let wanted = |pair: &&Pair| matches!(pair.reach, Reach::Asked | Reach::Bound);
        let wanted = self.pairs.iter().filter(wanted).map(Pair::id);
        let mut wanted: Vec<_> = wanted.collect();
        wanted.sort_by_key(|it| self.path != Some(*it));
        wanted.into_iter().map(|it| it.remote)
    }

    /// Sets the addresses that the relay has given to this side, one of each family at most; none if it gives none any
    /// longer. Returns whether that is news.
    pub fn set_relay(&mut self, addresses: &[SocketAddr], now: Duration) -> bool {
        if self.relay.addresses == addresses {
            return false;
        }
        let former = std::mem::replace(&mut self.relay.addresses, addresses.to_vec());
        let differs = |remote: SocketAddr| reaching(&former, remote) != reaching(addresses, remote);
        let moved = self.pairs.iter_mut();
        let moved = moved.filter(|pair| differs(pair.candidate.address));
        moved.for_each(Pair::unbind);
        if self
            .path
            .is_some_and(|path| path.by_relay && differs(path.remote))
        {
            self.drop_path(WhyNotDirect::RelayLost, now);
        }
        self.update_relay(now);
        // A peer that sends to a former address is to know, unless both have long been idle.
        let has_lost = former.iter().any(|it| !addresses.contains(it));
        let is_lost = has_lost && self.why != WhyNotDirect::Idle;
        self.tell_local(is_lost, now);
        true
    }

    /// Returns whether the relay has an address of the same family as an address of the peer.
    pub(super) fn relay_reaches(&self, remote: SocketAddr) -> bool {
        reaching(&self.relay.addresses, remote).is_some()
    }

    /// Call when the relay has a channel to an address of the peer. Returns whether that is news.
    pub fn handle_channel(&mut self, remote: SocketAddr, now: Duration) -> bool {
        let path = self.path_pair().cloned();
        let is_met = self.meeting_until.is_some() || path.is_some();
        let pair = self.find(PathId::by_relay(remote));
        let Some(pair) = pair.filter(|pair| pair.reach == Reach::Asked) else {
            return false;
        };
        pair.reach = Reach::Bound;
        let may_win = path.is_none_or(|path| may_be_better(pair, &path, now));
        if is_met && may_win {
            pair.begin(now);
        }
        true
    }

    /// Candidates offered to the peer; the addresses at the relay come last.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let kind = CandidateKind::Relayed;
        let relayed = self.relay.addresses.iter();
        let relayed = relayed.map(|&address| Candidate { kind, address });
        let mut all = self.local.clone();
        all.truncate(MAX_CANDIDATES - relayed.len());
        all.extend(relayed);
        all
    }

    /// Call when a meeting begins.
    pub(super) fn search_begins(&mut self, now: Duration) {
        let relay = &mut self.relay;
        if relay.is_there && relay.ask_at.is_none() && !relay.is_last_hope {
            relay.ask_at = Some(now + IN_VAIN);
        }
    }

    /// Call when a meeting has ended, or a path.
    pub(super) fn search_ends(&mut self) {
        self.relay.ask_at = None;
        self.relay.is_last_hope = false;
        self.relay.is_slower_than_hub = false;
    }

    /// Call when an authentic message of the peer has come by the relay: the peer's path may have it where this side's
    /// has not.
    pub(super) fn relay_was_used(&mut self, now: Duration) {
        let has_better = self.path_pair().is_some_and(|path| !is_relayed(path));
        if self.wants_relay() && !has_better {
            self.relay.needed_until = Some(now + KEPT);
        }
    }

    /// Returns when to call [`Agent::handle_timeout`] for the relay.
    pub(super) fn poll_relay(&self) -> Option<Duration> {
        let relay = &self.relay;
        let times = [
            relay.ask_at,
            relay.needed_until,
            relay.next_channel,
            self.next_look(),
        ];
        times.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn handle_relay_timeout(&mut self, now: Duration) {
        if self.relay.ask_at.take_if(|at| *at <= now).is_some() {
            self.relay.is_last_hope = true;
        }
        if self.next_look().is_some_and(|at| at <= now) {
            self.relay.look_again = None;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            self.offer.renew(false, self.seed, now);
            self.begin_rounds(now);
        }
        self.update_relay(now);
    }

    /// Returns when to look again for a path without a relay; `None` while there is no data. A look at an idle path may
    /// meet a peer that has just ended it, and so keep the relay without need.
    fn next_look(&self) -> Option<Duration> {
        let while_used = self.last_data + FIRST_PAUSE;
        self.relay.look_again.filter(|at| *at < while_used)
    }

    /// Looks again for a path without a relay, if the present one has one.
    pub(super) fn look_again(&mut self, now: Duration) {
        if let Some(at) = &mut self.relay.look_again {
            *at = now;
        }
    }

    /// Decides whether the relay is needed, and by which pairs.
    pub(super) fn update_relay(&mut self, now: Duration) {
        let is_relayed = self.path_pair().is_some_and(is_relayed);
        let again = now + self.pause;
        let look_again = &mut self.relay.look_again;
        *look_again = is_relayed.then(|| look_again.unwrap_or(again));
        let has_told = self.pairs.iter().any(is_for_relay);
        let is_met = self.meeting_until.is_some() && self.has_session;
        let relay = &mut self.relay;
        let is_needed = match self.path {
            Some(path) => path.by_relay,
            None => relay.is_last_hope && is_met && has_told,
        };
        relay.needed_until = match is_needed && relay.is_there {
            true => Some(now + KEPT),
            false => relay.needed_until.filter(|at| *at > now),
        };
        self.choose_channels(now);
    }

    /// Makes the pairs by the relay, and asks for their channels.
    fn choose_channels(&mut self, now: Duration) {
        self.relay.next_channel = None;
        if !self.wants_relay() {
            return self.pairs.retain(|pair| !pair.is_by_relay());
        }
        let told = self.told_for_relay();
        let path = self.path;
        self.pairs.retain(|pair| {
            let is_learnt = pair.candidate.kind == CandidateKind::Learnt;
            let is_told = told.iter().any(|it| it.address == pair.candidate.address);
            !pair.is_by_relay() || is_learnt || is_told || path == Some(pair.id())
        });
        for candidate in told {
            let by_relay = self.pairs.iter().filter(|pair| pair.is_by_relay()).count();
            let is_known = self.find(PathId::by_relay(candidate.address)).is_some();
            if !is_known && by_relay < MAX_CHANNELS {
                self.pairs.push(Pair::by_relay(candidate));
            }
        }
        let waiting = self
            .pairs
            .iter_mut()
            .filter(|pair| pair.reach == Reach::Wanted);
        for pair in waiting {
            match self.relay.budget.take(now) {
                true => pair.reach = Reach::Asked,
                false => self.relay.next_channel = Some(self.relay.budget.next(now)),
            }
        }
    }

    /// The addresses told by the peer that the relay is to reach: first those that it can, of both families in turn, and
    /// those that tell most about the peer's network.
    fn told_for_relay(&self) -> Vec<Candidate> {
        let told = self.pairs.iter().filter(|pair| is_for_relay(pair));
        let mut told: Vec<_> = told.map(|pair| pair.candidate).collect();
        told.sort_by_key(order);
        let earlier = |n: usize, is_alike: &dyn Fn(SocketAddr, SocketAddr) -> bool| {
            let to = told[n].address;
            told[..n]
                .iter()
                .filter(|it| is_alike(it.address, to))
                .count()
        };
        // A server's permission is for all ports of an address.
        let nth_port = |n| earlier(n, &|one, other| one.ip() == other.ip());
        let nth_of_family = |n| earlier(n, &|one, other| one.is_ipv4() == other.is_ipv4());
        let has_relay = !self.relay.addresses.is_empty();
        let key = |n: &usize| {
            let address = told[*n].address;
            let is_out_of_reach = has_relay && !self.relay_reaches(address);
            let nth = (nth_port(*n), nth_of_family(*n));
            (is_out_of_reach, nth, address.is_ipv4())
        };
        let mut order: Vec<_> = (0..told.len()).collect();
        order.sort_by_key(key);
        let first = order.into_iter().take(MAX_TOLD);
        first.map(|n| told[n]).collect()
    }
}

/// The relay's address that reaches one of the peer.
fn reaching(addresses: &[SocketAddr], remote: SocketAddr) -> Option<SocketAddr> {
    let mut addresses = addresses.iter().copied();
    addresses.find(|it| it.is_ipv4() == remote.is_ipv4())
}

/// Returns whether the peer has told the pair's address, and sockets of this side reach it.
fn is_for_relay(pair: &Pair) -> bool {
    !pair.is_by_relay() && pair.candidate.kind != CandidateKind::Learnt
}

/// The order in which addresses of a peer are tried from the internet, where the relay is.
fn order(candidate: &Candidate) -> (u8, bool) {
    let kind = match candidate.kind {
        CandidateKind::Reflexive => 0,
        CandidateKind::Mapped => 1,
        CandidateKind::Relayed => 2,
        CandidateKind::Host | CandidateKind::Learnt => 3,
    };
    let is_of_a_home = match candidate.address.ip() {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    (kind, is_of_a_home)
}
