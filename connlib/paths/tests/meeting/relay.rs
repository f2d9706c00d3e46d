//! A relay as an agent sees it: it gives an address and channels, a while after it was asked.

use std::{net::SocketAddr, time::Duration};

use convoy_paths::{Agent, MAX_CHANNELS};

/// How long the relay takes to answer.
const ANSWER: Duration = Duration::from_millis(40);

pub struct Relay {
    pub address: SocketAddr,
    /// Whether it answers.
    pub is_alive: bool,
    /// When it was asked for an address.
    asked: Option<Duration>,
    /// Whether it has given one.
    pub is_given: bool,
    /// Its channels, and when they were asked for or that they are there.
    channels: Vec<(SocketAddr, Option<Duration>)>,
    /// All channels so far, by time.
    pub all_channels: Vec<(Duration, SocketAddr)>,
    /// How often it was asked for an address.
    pub times_asked: u32,
    /// The destinations of all datagrams that it has sent.
    pub sent: Vec<SocketAddr>,
}

impl Relay {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            is_alive: true,
            asked: None,
            is_given: false,
            channels: Vec::new(),
            all_channels: Vec::new(),
            times_asked: 0,
            sent: Vec::new(),
        }
    }

    /// Asks for all that the agent wants, and gives back the rest.
    pub fn ask(&mut self, agent: &mut Agent, now: Duration) {
        if !agent.wants_relay() {
            self.asked = None;
            self.channels.clear();
            if std::mem::take(&mut self.is_given) {
                let _ = agent.set_relay(&[], now);
            }
            return;
        }
        let wanted: Vec<_> = agent.relay_peers().collect();
        assert!(wanted.len() <= MAX_CHANNELS);
        self.channels.retain(|(it, _)| wanted.contains(it));
        if !self.is_given {
            if self.asked.is_none() {
                self.asked = Some(now);
                self.times_asked += 1;
            }
            return;
        }
        let is_ipv4 = self.address.is_ipv4();
        for remote in wanted.into_iter().filter(|it| it.is_ipv4() == is_ipv4) {
            if !self.channels.iter().any(|(it, _)| *it == remote) {
                self.channels.push((remote, Some(now)));
                self.all_channels.push((now, remote));
            }
        }
    }

    pub fn next(&self) -> Option<Duration> {
        let channels = self.channels.iter().filter_map(|(_, asked)| *asked);
        let all = channels.chain(self.asked.filter(|_| !self.is_given));
        all.min().filter(|_| self.is_alive).map(|at| at + ANSWER)
    }

    /// Answers what was asked for a while ago.
    pub fn answer(&mut self, agent: &mut Agent, now: Duration) {
        if !self.is_alive {
            return;
        }
        if !self.is_given && self.asked.is_some_and(|at| at + ANSWER <= now) {
            self.is_given = true;
            let _ = agent.set_relay(&[self.address], now);
            self.ask(agent, now);
        }
        for (remote, asked) in &mut self.channels {
            if asked.take_if(|at| *at + ANSWER <= now).is_some() {
                let _ = agent.handle_channel(*remote, now);
            }
        }
    }

    /// Ends the allocation, and gives no other.
    pub fn die(&mut self, agent: &mut Agent, now: Duration) {
        self.is_alive = false;
        self.is_given = false;
        self.asked = None;
        self.channels.clear();
        let _ = agent.set_relay(&[], now);
    }

    /// Dies without a word, as when its machine loses power.
    pub fn fall_silent(&mut self) {
        self.is_alive = false;
    }

    /// Returns whether a datagram through a channel leaves the relay.
    pub fn sends_to(&mut self, remote: SocketAddr) -> bool {
        let is_bound = self.channels.contains(&(remote, None));
        assert!(is_bound || !self.is_alive, "{remote} has no channel");
        let is_sent = is_bound && self.is_given && self.is_alive;
        self.sent.extend(is_sent.then_some(remote));
        is_sent
    }

    /// Returns whether a datagram from `remote` has permission to pass (RFC 8656 §9): ports do not matter.
    pub fn admits(&self, remote: SocketAddr) -> bool {
        let mut channels = self.channels.iter();
        self.is_given
            && self.is_alive
            && channels.any(|(it, asked)| asked.is_none() && it.ip() == remote.ip())
    }
}
