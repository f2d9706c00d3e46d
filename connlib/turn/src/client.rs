//! The client of one server: allocates, binds a channel for each peer, and begins again after failures.

mod allocation;
mod progress;

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use turn_client_proto::stun::types::message::TransactionId;

use crate::{
    MAX_PEERS,
    channel::ChannelNumber,
    control::{Control, Handled},
    credentials::Credentials,
    error::{Failure, TooManyPeers},
    families::{Addresses, Families},
    held::Held,
    refresh::Refresh,
    request::{Progress, transaction_of},
    server::Server,
    watch::Watch,
};

/// Pause after a first failure; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts at an allocation.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Most events that wait; the newest wins a full queue, as it says how things are.
const MAX_EVENTS: usize = 64;

/// Something that the owner of the socket should know or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Open a stream to the server, then call [`Client::handle_connected`] or [`Client::handle_closed`].
    Connect,
    /// Close the stream, if there is one.
    Close,
    /// The server has given this address, which peers of its family see.
    Ready(SocketAddr),
    /// There is no allocation, none of a family, or a peer gets no channel.
    Failed(Failure),
    /// Datagrams to this peer pass now.
    Bound(SocketAddr),
}

/// How far the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No peer is asked for.
    Idle,
    /// The stream is being opened.
    Connecting,
    /// An allocation is asked for.
    Allocating,
    /// The server has given these addresses.
    Ready(Addresses),
    /// The client waits after a failure.
    Paused(Failure),
    /// [`Client::end`] was called.
    Ended,
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    server: Server,
    credentials: Credentials,
    peers: Vec<Peer>,
    state: State,
    /// Families that the present allocation was asked for, or that the server has refused.
    asked_for: Families,
    held: Held,
    events: VecDeque<Event>,
    outbox: VecDeque<Vec<u8>>,
    /// Failures since the server last kept an allocation for a while.
    failures: u32,
    watch: Watch,
    /// When the library wants to be called.
    library_due: Option<Duration>,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    channel: Option<ChannelNumber>,
    /// When to ask for a channel; `None` while it is asked for, or bound.
    ask_at: Option<Duration>,
}

#[derive(Debug)]
enum State {
    Idle,
    Connecting {
        until: Duration,
    },
    /// An allocation that may be left from before is being released.
    Releasing(Box<Refresh>),
    Allocating(Box<Control>),
    Ready {
        control: Box<Control>,
        relayed: Addresses,
        since: Duration,
    },
    Paused {
        until: Duration,
        failure: Failure,
        releases: bool,
    },
    Ended,
}

impl Client {
    /// Makes a client that does nothing until it has peers.
    #[must_use]
    pub fn new(server: Server, credentials: Credentials) -> Self {
        Self {
            server,
            credentials,
            peers: Vec::new(),
            state: State::Idle,
            asked_for: Families::NONE,
            held: Held::default(),
            events: VecDeque::new(),
            outbox: VecDeque::new(),
            failures: 0,
            watch: Watch::default(),
            library_due: None,
        }
    }

    /// Names every address that may be sent to, in place of the former ones.
    ///
    /// A channel cannot be given back: one to a former peer expires, and what it carries is dropped.
    ///
    /// # Errors
    /// [`TooManyPeers`]; nothing has changed.
    pub fn set_peers(&mut self, peers: &[SocketAddr], now: Duration) -> Result<(), TooManyPeers> {
        if peers.len() > MAX_PEERS {
            return Err(TooManyPeers);
        }
        let mut next: Vec<Peer> = Vec::with_capacity(peers.len());
        for &address in peers {
            if next.iter().any(|it| it.address == address) {
                continue;
            }
            let known = self.peers.iter().position(|it| it.address == address);
            next.push(match known {
                Some(n) => self.peers.swap_remove(n),
                None => Peer {
                    address,
                    channel: None,
                    ask_at: Some(now),
                },
            });
        }
        let former = std::mem::replace(&mut self.peers, next);
        if let State::Ready { control, .. } = &mut self.state {
            former.iter().for_each(|it| control.rest(it.address));
        }
        self.held
            .retain(|to| self.peers.iter().any(|it| it.address == to));
        let lacks_family = !self.families().are_among(self.asked_for);
        match (&self.state, self.peers.is_empty()) {
            (State::Idle, false) => self.begin(now),
            (State::Idle | State::Ended, _) => {}
            (_, true) => {
                self.delete(now);
                self.events.push_back(Event::Close);
                self.state = State::Idle;
            }
            (State::Allocating(_) | State::Ready { .. }, false) if lacks_family => {
                self.restart(now);
            }
            _ => {}
        }
        self.advance(now);
        Ok(())
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> Server {
        self.server
    }

    /// Returns how far the client is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Idle => Phase::Idle,
            State::Connecting { .. } => Phase::Connecting,
            State::Releasing(_) | State::Allocating(_) => Phase::Allocating,
            State::Ready { relayed, .. } => Phase::Ready(*relayed),
            State::Paused { failure, .. } => Phase::Paused(*failure),
            State::Ended => Phase::Ended,
        }
    }

    /// Returns whether `to` is one of the peers.
    #[must_use]
    pub fn serves(&self, to: SocketAddr) -> bool {
        self.peers.iter().any(|it| it.address == to)
    }

    /// The channel that leads to `to`, if it is bound. Tell [`Self::note_sent`] of its use.
    #[must_use]
    #[inline]
    pub fn channel(&self, to: SocketAddr) -> Option<ChannelNumber> {
        self.peers.iter().find(|it| it.address == to)?.channel
    }

    /// The peer at the end of `channel`. Tell [`Self::note_received`] of its authentic datagrams.
    #[must_use]
    #[inline]
    pub fn peer(&self, channel: ChannelNumber) -> Option<SocketAddr> {
        let bound = self.peers.iter().find(|it| it.channel == Some(channel));
        bound.map(|it| it.address)
    }

    /// Notes that datagrams which peers answer have been sent through channels. Returns whether [`Self::poll_timeout`]
    /// has changed.
    #[inline]
    pub fn note_sent(&mut self, now: Duration) -> bool {
        self.watch.note_sent(now)
    }

    /// Notes that authentic datagrams have arrived through channels. What anybody may have forged proves nothing.
    #[inline]
    pub fn note_received(&mut self) {
        self.watch.note_received();
    }

    /// Keeps a datagram until its peer has a channel, for five seconds at most. Datagrams to others are
    /// dropped, as are the oldest ones beyond the bound.
    pub fn hold(&mut self, to: SocketAddr, datagram: &[u8], now: Duration) {
        match self.serves(to) {
            true => self.held.push(to, datagram, now),
            false => self.held.refuse(),
        }
    }

    /// Returns the oldest held datagram whose peer has a channel by now.
    pub fn poll_held(&mut self, now: Duration) -> Option<(SocketAddr, Vec<u8>)> {
        let Self { held, peers, .. } = self;
        let is_bound = |to| {
            peers
                .iter()
                .any(|it| it.address == to && it.channel.is_some())
        };
        held.take(is_bound, now)
    }

    /// Drops the held datagrams: nobody will send them.
    pub fn drop_held(&mut self) {
        self.held.retain(|_| false);
    }

    /// Returns the number of held datagrams dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        self.held.take_dropped()
    }

    /// Asks for a new allocation at once: call it when the network has changed, so that the server sees another address.
    pub fn renew(&mut self, now: Duration) {
        match &self.state {
            State::Idle | State::Connecting { .. } | State::Ended => return,
            State::Paused { .. } => self.begin(now),
            State::Releasing(_) | State::Allocating(_) | State::Ready { .. } => self.restart(now),
        }
        self.failures = 0;
        self.advance(now);
    }

    /// Releases an allocation whose address is known to belong to another host, and asks again after a pause.
    pub fn reject_address(&mut self, now: Duration) {
        if matches!(self.state, State::Ready { .. }) {
            self.reject(now);
        }
    }

    /// Takes the news that the stream is open.
    pub fn handle_connected(&mut self, now: Duration) {
        if matches!(self.state, State::Connecting { .. }) {
            self.allocate();
            self.advance(now);
        }
    }

    /// Takes the news that the stream could not be opened, or has ended.
    pub fn handle_closed(&mut self, now: Duration) {
        if !matches!(
            self.state,
            State::Idle | State::Paused { .. } | State::Ended
        ) {
            self.fail(Failure::Connection, now);
        }
    }

    /// Takes a message from the server that is no ChannelData. Returns whether it answers a request: one that is forged,
    /// late, or no STUN changes nothing.
    pub fn handle_message(&mut self, bytes: &[u8], now: Duration) -> bool {
        // Anybody can send many of these, so they must cost little.
        if !transaction_of(bytes).is_some_and(|it| self.has_asked(it)) {
            return false;
        }
        let is_answer = match &mut self.state {
            State::Releasing(release) => {
                let progress = release.handle(bytes, now);
                if progress.is_some_and(|it| it != Progress::Waiting) {
                    self.allocate();
                }
                progress.is_some()
            }
            State::Allocating(control) | State::Ready { control, .. } => {
                match self.watch.handle(bytes, now) {
                    Some(verdict) => {
                        self.judge(verdict, now);
                        true
                    }
                    None => match control.handle(bytes, now) {
                        Handled::Known => true,
                        Handled::Unauthorized => {
                            self.fail(Failure::Credentials, now);
                            true
                        }
                        Handled::Stranger => false,
                    },
                }
            }
            _ => false,
        };
        self.advance(now);
        is_answer
    }

    /// Handles due timers.
    pub fn handle_timeout(&mut self, now: Duration) {
        match &self.state {
            State::Connecting { until } if *until <= now => self.fail(Failure::Silent, now),
            State::Paused {
                until, releases, ..
            } if *until <= now => match *releases {
                true => self.release(now),
                false => self.begin(now),
            },
            State::Ready { .. } => {
                let transport = self.server.transport;
                let (verdict, request) = self.watch.poll(&self.credentials, transport, now);
                self.outbox.extend(request);
                self.judge(verdict, now);
            }
            _ => {}
        }
        self.advance(now);
    }

    /// Returns when to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Idle | State::Ended => None,
            State::Connecting { until } | State::Paused { until, .. } => Some(*until),
            State::Releasing(release) => Some(release.due()),
            State::Allocating(_) => self.library_due,
            State::Ready { relayed, .. } => {
                let reached = |it: &&Peer| relayed.reaching(it.address).is_some();
                let asks = self.peers.iter().filter(reached);
                let asks = asks.filter_map(|it| it.ask_at).min();
                [self.library_due, self.watch.due(), asks]
                    .into_iter()
                    .flatten()
                    .min()
            }
        }
    }

    /// Returns the next message to the server.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        while self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.pop_front()
    }

    /// Gives the allocation back. Send what [`Self::poll_transmit`] returns, once; the client stays silent then.
    pub fn end(&mut self, now: Duration) {
        self.delete(now);
        self.drop_held();
        self.state = State::Ended;
    }

    fn has_asked(&self, transaction: TransactionId) -> bool {
        match &self.state {
            State::Releasing(release) => release.has_transaction(transaction),
            State::Allocating(control) | State::Ready { control, .. } => {
                control.has_asked(transaction) || self.watch.has_asked(transaction)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
