//! Counters of a rule's traffic and refusals.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::relay::{Moved, Pressure};

/// Reason why a connection, or the first datagram of a flow, was not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client is not allowed.
    Denied,
    /// The target is refused unless it is allowed explicitly: see [`Policy`](crate::policy::Policy).
    Forbidden,
    /// The target is on a list of denied ones.
    TargetDenied,
    /// Too many connections or flows exist.
    TooMany,
    /// The client has too many connections or flows.
    TooManyOfPeer,
    /// The client took too long to complete its request.
    Silent,
    /// The client's request is not one.
    Malformed,
    /// The client asks for something that is not offered.
    Unsupported,
    /// The client's password is wrong or absent.
    WrongPassword,
    /// The target's name has no address.
    UnknownName,
    /// The target refuses connections.
    TargetRefused,
    /// There is no way to the target.
    Unreachable,
    /// There is no way to the target's network.
    NoRoute,
    /// A firewall, or a route of this host, prohibits the target.
    Prohibited,
    /// The target does not answer.
    TimedOut,
    /// This process has no descriptors left.
    NoDescriptors,
    /// This host has no port left from which to reach the target, or no address.
    NoSource,
    /// Too many bytes wait for flows that are being set up: of all, or of the rule or peer.
    TooMuchWaiting,
    /// A flow of datagrams made room for a newer one, as its holder had most.
    Replaced,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 19] = [
        Self::Denied,
        Self::Forbidden,
        Self::TargetDenied,
        Self::TooMany,
        Self::TooManyOfPeer,
        Self::Silent,
        Self::Malformed,
        Self::Unsupported,
        Self::WrongPassword,
        Self::UnknownName,
        Self::TargetRefused,
        Self::Unreachable,
        Self::NoRoute,
        Self::Prohibited,
        Self::TimedOut,
        Self::NoDescriptors,
        Self::NoSource,
        Self::TooMuchWaiting,
        Self::Replaced,
    ];

    /// The name of its counter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Forbidden => "forbidden",
            Self::TargetDenied => "target_denied",
            Self::TooMany => "too_many",
            Self::TooManyOfPeer => "too_many_of_peer",
            Self::Silent => "silent",
            Self::Malformed => "malformed",
            Self::Unsupported => "unsupported",
            Self::WrongPassword => "wrong_password",
            Self::UnknownName => "unknown_name",
            Self::TargetRefused => "target_refused",
            Self::Unreachable => "unreachable",
            Self::NoRoute => "no_route",
            Self::Prohibited => "prohibited",
            Self::TimedOut => "timed_out",
            Self::NoDescriptors => "no_descriptors",
            Self::NoSource => "no_source",
            Self::TooMuchWaiting => "too_much_waiting",
            Self::Replaced => "replaced",
        }
    }
}

/// The counters of a rule, which count while it runs.
#[derive(Debug, Default)]
pub struct Counters {
    opened: AtomicU64,
    closed: AtomicU64,
    /// Bytes that were moved.
    pub moved: Moved,
    /// Datagrams that were discarded.
    pub dropped: AtomicU64,
    refusals: [AtomicU64; Refusal::ALL.len()],
}

/// Totals of the traffic and refusals of a rule, or of all rules, so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections and UDP flows that reached their target.
    pub opened: u64,
    /// Connections and flows that have ended.
    pub closed: u64,
    /// Bytes from clients to targets.
    pub bytes_out: u64,
    /// Bytes from targets to clients.
    pub bytes_in: u64,
    /// Datagrams that were discarded: a socket was full, or refused them.
    pub dropped: u64,
    refusals: [u64; Refusal::ALL.len()],
    met: [u64; Pressure::ALL.len()],
}

impl Counters {
    /// Counts a connection or flow that was refused.
    pub fn refuse(&self, reason: Refusal) {
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts datagrams that were discarded.
    pub fn drop_datagrams(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts a connection or flow until the result is dropped.
    pub fn open(&self) -> Open<'_> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }

    /// Reads all of them.
    pub fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            opened: read(&self.opened),
            closed: read(&self.closed),
            bytes_out: read(&self.moved.outbound),
            bytes_in: read(&self.moved.inbound),
            dropped: read(&self.dropped),
            refusals: std::array::from_fn(|index| read(&self.refusals[index])),
            met: Pressure::ALL.map(|pressure| self.moved.met(pressure)),
        }
    }
}

/// A connection or flow that is open.
#[derive(Debug)]
pub struct Open<'a>(&'a Counters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Totals {
    /// Returns the number of refusals for this reason.
    #[must_use]
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refusals[reason as usize]
    }

    /// Returns the number of times that its connections reached this bound of the relay.
    #[must_use]
    pub fn met(&self, pressure: Pressure) -> u64 {
        self.met[pressure as usize]
    }

    /// Adds those of another rule.
    pub fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.closed += other.closed;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.dropped += other.dropped;
        for (sum, refused) in self.refusals.iter_mut().zip(other.refusals) {
            *sum += refused;
        }
        for (sum, met) in self.met.iter_mut().zip(other.met) {
            *sum += met;
        }
    }
}
