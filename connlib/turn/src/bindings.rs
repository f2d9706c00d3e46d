//! The channels of an allocation: asked for, kept, and let expire.
//!
//! A channel's number is one of the allocation as a whole, whichever of its relayed addresses it uses (RFC 8656 §12). The
//! library counts separately for each address, so that one number would lead to two peers. So channels are bound here.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use turn_client_proto::stun::{
    auth::LongTermClientAuth,
    types::message::{Message, TransactionId},
};

use crate::{
    channel::ChannelNumber,
    control::Change,
    credentials::Credentials,
    error::Failure,
    request::{Progress, Purpose, Request, Schedule, end_of_allocation, signer},
    server::Transport,
};

/// Most channels that the server may have, former ones included.
pub(crate) const MAX_CHANNELS: usize = 512;
/// Lifetime of a channel (RFC 8656 §12).
const LIFETIME: Duration = Duration::from_secs(600);
/// Time after which a channel's number may lead to another peer (RFC 8656 §12).
const RESERVED: Duration = Duration::from_secs(300);
/// Time after which a channel is bound again, as its permission lasts for five minutes (RFC 8656 §9).
const REFRESHED: Duration = Duration::from_secs(240);
/// Time after which the server is asked again if it did not answer.
const AGAIN: Duration = Duration::from_secs(15);
/// Shortest time between two requests (RFC 8489 §6.2.1).
const BETWEEN: Duration = Duration::from_millis(50);

/// The channels of an allocation.
pub(crate) struct Bindings {
    auth: LongTermClientAuth,
    transport: Transport,
    list: Vec<Binding>,
    changes: VecDeque<Change>,
    /// Time before which nothing is sent.
    not_before: Duration,
}

#[derive(Debug)]
struct Binding {
    peer: SocketAddr,
    channel: ChannelNumber,
    /// Whether the peer is to be reached; otherwise the channel expires.
    is_wanted: bool,
    /// When it was last bound; `None` if it is not.
    bound_at: Option<Duration>,
    /// When the server was last asked for it.
    asked_at: Duration,
    /// The request under way.
    request: Option<Request>,
    /// When to ask again.
    ask_at: Option<Duration>,
}

impl Bindings {
    pub(crate) fn new(transport: Transport, credentials: &Credentials) -> Self {
        Self {
            auth: signer(credentials),
            transport,
            list: Vec::new(),
            changes: VecDeque::new(),
            not_before: Duration::ZERO,
        }
    }

    /// Learns the server's nonce from its answer to an ALLOCATE request.
    pub(crate) fn learn_nonce(&mut self, answer: &Message<'_>) {
        let _ = self.auth.validate_incoming_message(answer);
    }

    /// Asks for a channel to `peer`; returns whether there is one to ask for.
    pub(crate) fn bind(&mut self, peer: SocketAddr, now: Duration) -> bool {
        self.list.retain(|it| !it.is_over(now));
        let known = self.list.iter().position(|it| it.peer == peer);
        let Some(n) = known.or_else(|| self.add(peer, now)) else {
            return false;
        };
        let binding = &mut self.list[n];
        binding.is_wanted = true;
        binding.bound_at = None;
        binding.ask_at = Some(now);
        true
    }

    /// Makes the request that ends the whole allocation, with the newest nonce; `None` before there is one.
    pub(crate) fn release(&mut self) -> Option<Vec<u8>> {
        end_of_allocation(&mut self.auth)
    }

    /// Lets the channel to `peer` expire.
    pub(crate) fn rest(&mut self, peer: SocketAddr) {
        let mut bindings = self.list.iter_mut();
        if let Some(binding) = bindings.find(|it| it.peer == peer) {
            binding.rest();
        }
    }

    /// Returns when to call [`Self::poll_transmit`].
    pub(crate) fn due(&self) -> Option<Duration> {
        let due = self.list.iter().filter_map(Binding::due).min();
        due.map(|at| at.max(self.not_before))
    }

    /// Handles due timers; returns the next request to send.
    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if now < self.not_before {
            return None;
        }
        while let Some(n) = self.first_due(now) {
            if let Some(request) = self.ask(n, now) {
                self.not_before = now + BETWEEN;
                return Some(request);
            }
        }
        None
    }

    /// Returns the next change of a channel.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Returns whether a request of these is sent under this transaction.
    pub(crate) fn have_asked(&self, transaction: TransactionId) -> bool {
        let mut requests = self.list.iter().filter_map(|it| it.request.as_ref());
        requests.any(|it| it.has_transaction(transaction))
    }

    /// Takes a message of the server; returns whether it answers a request of these.
    pub(crate) fn handle(&mut self, message: &Message<'_>, now: Duration) -> bool {
        let is_answered = |it: &Binding| {
            let request = it.request.as_ref();
            request.is_some_and(|it| it.is_answered_by(message))
        };
        let Some(n) = self.list.iter().position(is_answered) else {
            return false;
        };
        let Self { list, auth, .. } = self;
        let request = list[n].request.as_mut();
        if let Some(progress) = request.map(|it| it.handle(message, auth, now)) {
            self.take(n, progress, now);
        }
        true
    }

    fn first_due(&self, now: Duration) -> Option<usize> {
        let due = |n: &usize| self.list[*n].due().filter(|at| *at <= now);
        let all = 0..self.list.len();
        all.filter(|n| due(n).is_some()).min_by_key(due)
    }

    /// Sends the request of a channel that is due, or takes note that nobody has answered it.
    fn ask(&mut self, n: usize, now: Duration) -> Option<Vec<u8>> {
        let (schedule, auth) = (self.schedule(), &mut self.auth);
        let binding = &mut self.list[n];
        if binding.ask_at.take_if(|at| *at <= now).is_some() {
            let purpose = Purpose::Bind(binding.channel, binding.peer);
            binding.request = Request::new(purpose, schedule, auth, now);
        }
        let polled = binding.request.as_mut().map(|it| it.poll(now));
        let (progress, request) = polled.unwrap_or((Progress::Silent, None));
        if request.is_some() {
            binding.asked_at = now;
        }
        self.take(n, progress, now);
        request
    }

    fn take(&mut self, n: usize, progress: Progress, now: Duration) {
        let binding = &mut self.list[n];
        let peer = binding.peer;
        let failure = match progress {
            Progress::Waiting => return,
            Progress::Done => {
                let is_new = binding.bound_at.replace(now).is_none();
                binding.request = None;
                binding.ask_at = Some(now + REFRESHED);
                let change = Change::Bound(peer, binding.channel);
                return self.changes.extend(is_new.then_some(change));
            }
            Progress::Silent if binding.bound_at.is_some_and(|at| now < at + LIFETIME) => {
                binding.request = None;
                binding.ask_at = Some(now + AGAIN);
                return;
            }
            Progress::Silent => Failure::Silent,
            Progress::Refused(code) => Failure::of_code(code),
        };
        binding.rest();
        self.changes.push_back(Change::NotBound(peer, failure));
    }

    /// Gives the peer the lowest number that leads to nobody; `None` if there are too many channels.
    fn add(&mut self, peer: SocketAddr, now: Duration) -> Option<usize> {
        if self.list.len() == MAX_CHANNELS {
            return None;
        }
        let is_free = |it: &ChannelNumber| self.list.iter().all(|known| known.channel != *it);
        let channel = ChannelNumber::all().find(is_free)?;
        self.list.push(Binding {
            peer,
            channel,
            is_wanted: true,
            bound_at: None,
            asked_at: now,
            request: None,
            ask_at: None,
        });
        Some(self.list.len() - 1)
    }

    /// Four requests in 7.5 seconds; a stream repeats lost segments by itself.
    fn schedule(&self) -> Schedule {
        let (pause, growth, attempts) = match self.transport {
            Transport::Udp => (Duration::from_millis(500), 2, 4),
            Transport::Stream => (Duration::from_secs(15), 1, 1),
        };
        Schedule {
            pause,
            growth,
            attempts,
        }
    }
}

impl Binding {
    fn due(&self) -> Option<Duration> {
        let request = self.request.as_ref().map(Request::due);
        request.into_iter().chain(self.ask_at).min()
    }

    /// Lets the channel expire.
    fn rest(&mut self) {
        self.is_wanted = false;
        self.bound_at = None;
        self.request = None;
        self.ask_at = None;
    }

    /// Returns whether the server has surely forgotten the channel, which nobody wants.
    fn is_over(&self, now: Duration) -> bool {
        !self.is_wanted && self.asked_at + LIFETIME + RESERVED <= now
    }
}

/// Leaves out what signs requests, which prints the password.
impl std::fmt::Debug for Bindings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bindings")
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}
