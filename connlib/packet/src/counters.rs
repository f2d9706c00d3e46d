//! Counters of what a stack has carried and discarded.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a packet was discarded, or a connection refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is no packet, or a length in it is wrong.
    Malformed,
    /// Its checksum is wrong.
    BadChecksum,
    /// It is for another address.
    NotOurs,
    /// No host can be at its source address.
    BadSource,
    /// Its transport protocol, or an extension header of IPv6, is not known here.
    UnknownProtocol,
    /// A fragment that does not fit the others, or one of too many packets.
    Fragment,
    /// Fragments that were not completed in time.
    FragmentTimeout,
    /// A TCP segment that acknowledges what was never sent.
    UnsentAcknowledged,
    /// A TCP segment or datagram for a port that nobody has.
    NobodyListens,
    /// Too many connections exist.
    TooManyFlows,
    /// A connection that was not established when too many newer ones came.
    HalfOpen,
    /// A connection that a listener has not accepted, as too many wait for it.
    BacklogFull,
    /// A datagram for a socket whose queue is full.
    QueueFull,
    /// A datagram for a socket of a flow, as the queues of all flows hold too much.
    MemoryFull,
    /// A packet that the device had no room for.
    DeviceFull,
    /// The device refused it.
    DeviceFailed,
    /// An answer about an error, beyond the limit on their rate.
    TooManyErrors,
    /// It has passed as many routers as it may.
    Expired,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::BadChecksum,
        Self::NotOurs,
        Self::BadSource,
        Self::UnknownProtocol,
        Self::Fragment,
        Self::FragmentTimeout,
        Self::UnsentAcknowledged,
        Self::NobodyListens,
        Self::TooManyFlows,
        Self::HalfOpen,
        Self::BacklogFull,
        Self::QueueFull,
        Self::MemoryFull,
        Self::DeviceFull,
        Self::DeviceFailed,
        Self::TooManyErrors,
        Self::Expired,
    ];

    /// The name of its counter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::BadChecksum => "bad_checksum",
            Self::NotOurs => "not_ours",
            Self::BadSource => "bad_source",
            Self::UnknownProtocol => "unknown_protocol",
            Self::Fragment => "fragment",
            Self::FragmentTimeout => "fragment_timeout",
            Self::UnsentAcknowledged => "unsent_acknowledged",
            Self::NobodyListens => "nobody_listens",
            Self::TooManyFlows => "too_many_flows",
            Self::HalfOpen => "half_open",
            Self::BacklogFull => "backlog_full",
            Self::QueueFull => "queue_full",
            Self::MemoryFull => "memory_full",
            Self::DeviceFull => "device_full",
            Self::DeviceFailed => "device_failed",
            Self::TooManyErrors => "too_many_errors",
            Self::Expired => "hops_exceeded",
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of what a stack has carried and discarded so far.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            drops: [u64; Dropped::ALL.len()],
        }

        /// Counters that count while packets pass.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            drops: [Counter; Dropped::ALL.len()],
        }

        impl Counters {
            /// Reads all of them.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.value(),)*
                    drops: std::array::from_fn(|index| self.drops[index].value()),
                }
            }
        }

        impl Snapshot {
            /// The counters by name, except the drops.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Messages from the tunnel: packets and super-packets.
    received,
    /// Bytes of these packets.
    received_bytes,
    /// Messages to the tunnel.
    sent,
    /// Bytes of these packets.
    sent_bytes,
    /// Super-packets among the messages to the tunnel.
    sent_super,
    /// Bytes of TCP's payload that were sent again.
    resent_bytes,
    /// Connections that were begun, from either side.
    flows_opened,
    /// Flows that have ended.
    flows_closed,
    /// Connections that the other end has reset.
    resets,
    /// Connections that were given up because the other end was silent.
    timeouts,
    /// Datagrams that were received.
    datagrams_in,
    /// Datagrams that were sent.
    datagrams_out,
    /// Packets that were put together from fragments.
    reassembled,
    /// Connections, and hosts, to which packets have become shorter because a router demanded it.
    path_mtu_changes,
}

/// A counter, which threads share.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Counts a packet that was dropped.
    pub fn drop(&self, reason: Dropped) {
        self.drops[reason as usize].add(1);
    }

    /// Counts a message to the tunnel.
    pub fn count_sent(&self, bytes: usize, is_super: bool) {
        self.sent.add(1);
        self.sent_bytes.add(bytes as u64);
        self.sent_super.add(is_super.into());
    }
}

impl Snapshot {
    /// Returns how much was discarded for this reason.
    #[must_use]
    pub fn dropped(&self, reason: Dropped) -> u64 {
        self.drops[reason as usize]
    }
}
