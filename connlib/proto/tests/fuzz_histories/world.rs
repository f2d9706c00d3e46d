//! Two ends, the network between them, and time.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    time::{Duration, UNIX_EPOCH},
};

use convoy_proto::{
    config::{PeerUpdate, PresharedKey},
    counters::DropReason,
};

use crate::common::*;

/// The age at which a session ends (WireGuard paper, §6.1).
const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);
/// Longer than an initiation awaits its response (§6.4).
const ANSWER_TIME: Duration = Duration::from_secs(95);

pub(crate) struct World {
    pub(crate) ends: [End; 2],
    pub(crate) now: Duration,
    /// Datagrams in flight, oldest first.
    pub(crate) flying: Vec<Flying>,
    /// Copies of earlier datagrams, which may arrive again.
    pub(crate) copies: Vec<Flying>,
    /// The numbers of sixteen datagrams that are lost, duplicated and late.
    pub(crate) fate: [u8; 3],
    pub(crate) dice: u64,
    /// The sender of each packet, by its number.
    pub(crate) senders: Vec<usize>,
    /// The number of initiations sent.
    pub(crate) initiations: u32,
}

pub(crate) struct End {
    pub(crate) host: Host,
    pub(crate) is_up: bool,
    pub(crate) has_peer: bool,
    pub(crate) preshared: u8,
    pub(crate) keepalive: u16,
    /// The number of packets offered to it.
    pub(crate) offered: u64,
    /// Datagrams accepted since the peer was added.
    accepted: HashSet<Vec<u8>>,
    /// The latest time at which its sessions expire, by the index that it has assigned.
    sessions: HashMap<[u8; 4], Duration>,
}

#[derive(Clone)]
pub(crate) struct Flying {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) datagram: Vec<u8>,
}

impl World {
    pub(crate) fn new() -> Self {
        let end = |n| End {
            host: Host::new(n),
            is_up: true,
            has_peer: false,
            preshared: 0,
            keepalive: 0,
            offered: 0,
            accepted: HashSet::new(),
            sessions: HashMap::new(),
        };
        let mut world = Self {
            ends: [end(1), end(2)],
            now: Duration::from_secs(10_000),
            flying: Vec::new(),
            copies: Vec::new(),
            fate: [0; 3],
            dice: 1,
            senders: Vec::new(),
            initiations: 0,
        };
        for end in 0..2 {
            world.set_peer(end, true);
        }
        world
    }

    pub(crate) fn send(&mut self, end: usize) {
        let number = self.senders.len() as u32;
        self.senders.push(end);
        let (other, now) = (1 - end, self.now);
        let to = self.ends[other].host.inner;
        let end = &mut self.ends[end];
        end.offered += 1;
        let packet = ipv4(end.host.inner, to, &number.to_be_bytes());
        let sent = end.host.sent_for(&[packet], now);
        self.launch(other, sent);
    }

    /// Carries the datagrams of both ends, subject to `fate`.
    pub(crate) fn carry(&mut self) {
        for _ in 0..64 {
            for end in 0..2 {
                let host = &mut self.ends[end].host;
                let sent = host.take_sent(self.now);
                while host.node.poll_source_question().is_some() {}
                while host.node.poll_reply().is_some() {}
                self.launch(1 - end, sent);
            }
            if self.flying.is_empty() {
                return;
            }
            for flying in std::mem::take(&mut self.flying) {
                self.arrive(&flying);
            }
        }
        panic!("the ends answer each other endlessly at {:?}", self.now);
    }

    pub(crate) fn launch(&mut self, to_end: usize, sent: Vec<(SocketAddr, Vec<u8>)>) {
        let from = self.ends[1 - to_end].host.address;
        for (to, datagram) in sent {
            self.announce(1 - to_end, &datagram);
            let flying = Flying { from, to, datagram };
            if self.copies.len() < 64 {
                self.copies.push(flying.clone());
            }
            let [lost, twice, late] = self.fate;
            if self.roll() < lost {
                continue;
            }
            if self.roll() < twice {
                self.flying.push(flying.clone());
            }
            if self.roll() < late {
                let nth = usize::from(self.roll()) % (self.flying.len() + 1);
                self.flying.insert(nth, flying);
            } else {
                self.flying.push(flying);
            }
        }
    }

    /// Notes when the session that a handshake message of `end` leads to expires.
    fn announce(&mut self, end: usize, datagram: &[u8]) {
        let longest = match datagram[0] {
            1 => ANSWER_TIME + REJECT_AFTER_TIME,
            2 => REJECT_AFTER_TIME,
            _ => return,
        };
        self.initiations += u32::from(datagram[0] == 1);
        let sessions = &mut self.ends[end].sessions;
        sessions.insert(index(datagram), self.now + longest);
    }

    /// Delivers a datagram; if it is accepted, checks that it is new and its session not expired.
    pub(crate) fn arrive(&mut self, flying: &Flying) {
        let (now, datagram) = (self.now, &flying.datagram);
        let ends = self.ends.iter_mut();
        for end in ends.filter(|end| end.host.address == flying.to) {
            let host = &mut end.host;
            let drops = all_drops(host);
            host.receive(datagram, flying.from, now);
            let is_cookie = datagram[0] == 3;
            if is_cookie || all_drops(host) > drops {
                continue;
            }
            assert!(
                end.accepted.insert(datagram.clone()),
                "accepted twice: {datagram:?}"
            );
            let session = end.sessions.get(&index(datagram));
            let is_in_time = datagram[0] != 4 || session.is_some_and(|end| now < *end);
            assert!(is_in_time, "accepted after {session:?}: {datagram:?}");
        }
    }

    /// Delivers a copy of an earlier datagram.
    pub(crate) fn come_again(&mut self, which: u8) {
        if !self.copies.is_empty() {
            let nth = usize::from(which) % self.copies.len();
            let flying = self.copies.swap_remove(nth);
            self.arrive(&flying);
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..200_000 {
            let due = self
                .ends
                .iter()
                .filter_map(|end| end.host.node.poll_timeout());
            let next = due.min().unwrap_or(end).clamp(self.now, end);
            self.now = next;
            for end in &mut self.ends {
                end.host.tick(next);
            }
            self.carry();
            let is_more = self
                .ends
                .iter()
                .any(|end| end.host.node.poll_timeout().is_some_and(|at| at <= next));
            if next == end && !is_more {
                return;
            }
        }
        panic!("a timer fires endlessly at {:?}", self.now);
    }

    pub(crate) fn set_link(&mut self, end: usize, is_up: bool) {
        let now = self.now;
        let end = &mut self.ends[end];
        end.is_up = is_up;
        end.host.node.set_link(is_up, now);
    }

    /// Adds or reconfigures the peer according to this end's settings.
    pub(crate) fn set_peer(&mut self, end: usize, with_endpoint: bool) {
        let mut peer = self.ends[1 - end].host.as_peer();
        let mine = &mut self.ends[end];
        mine.has_peer = true;
        peer.preshared_key = preshared_of(mine.preshared);
        peer.persistent_keepalive = Some(mine.keepalive);
        peer.endpoint = with_endpoint.then_some(self.ends[1 - end].host.address);
        self.ends[end].host.set_peer(peer, self.now);
    }

    pub(crate) fn set_preshared(&mut self, end: usize, byte: u8) {
        self.ends[end].preshared = byte;
        self.change(end, |peer| peer.preshared_key = preshared_of(byte));
    }

    pub(crate) fn remove_peer(&mut self, end: usize) {
        self.ends[end].has_peer = false;
        self.ends[end].accepted.clear();
        let mut peer = PeerUpdate::new(self.ends[1 - end].host.public_key());
        peer.remove = true;
        self.ends[end].host.set_peer(peer, self.now);
    }

    pub(crate) fn change(&mut self, end: usize, change: impl FnOnce(&mut PeerUpdate)) {
        let mut peer = PeerUpdate::new(self.ends[1 - end].host.public_key());
        peer.update_only = true;
        change(&mut peer);
        self.ends[end].host.set_peer(peer, self.now);
    }

    pub(crate) fn knows_endpoint(&mut self, end: usize) -> bool {
        let now = self.now;
        let peers = self.ends[end]
            .host
            .node
            .snapshot(now, UNIX_EPOCH + now)
            .peers;
        peers[0].endpoint == Some(self.ends[1 - end].host.address)
    }

    pub(crate) fn roll(&mut self) -> u8 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 32) as u8 & 15
    }
}

impl End {
    /// The number of packets held for a session: neither sent nor dropped.
    pub(crate) fn held(&mut self) -> u64 {
        let sent = self.host.node.counters().outbound_packets;
        let outbound = |reason: &&DropReason| reason.name().starts_with("outbound");
        let reasons = DropReason::ALL.iter().filter(outbound);
        let dropped: u64 = reasons.map(|&reason| self.host.drops(reason)).sum();
        let held = self.offered.checked_sub(sent + dropped);
        held.expect("a packet was counted twice")
    }
}

/// The sender's index in a handshake message; the receiver's in a data message.
fn index(datagram: &[u8]) -> [u8; 4] {
    *datagram[4..].first_chunk().expect("a message")
}

fn all_drops(host: &mut Host) -> u64 {
    DropReason::ALL
        .iter()
        .map(|&reason| host.drops(reason))
        .sum()
}

/// No key if `byte` is zero.
pub(crate) fn preshared_of(byte: u8) -> Option<Option<PresharedKey>> {
    Some((byte > 0).then_some(PresharedKey([byte; 32])))
}
