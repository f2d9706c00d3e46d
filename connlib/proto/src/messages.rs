//! The layout of WireGuard's messages, and the longest of them that go by a hub.

pub(crate) use convoy_noise::messages::{
    COOKIE_REPLY, DATA_HEADER, DATA_OVERHEAD, INITIATION, RESPONSE, counter_of, index_at,
};
use convoy_paths::MAX_MESSAGE;

/// Longest message to a peer that is met through a hub: one about paths, padded and sealed.
pub(crate) const LONGEST_BY_HUB: usize = MAX_MESSAGE.next_multiple_of(16) + DATA_OVERHEAD;
/// Longest datagram to a hub with such a message inside, behind headers of IPv6 and UDP.
pub(crate) const LONGEST_TO_HUB: usize = (LONGEST_BY_HUB + 48).next_multiple_of(16) + DATA_OVERHEAD;
