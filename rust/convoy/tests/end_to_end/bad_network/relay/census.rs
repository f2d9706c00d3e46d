//! Classifies the datagrams that a relay sends on, as their receiver must.

use std::collections::{HashMap, HashSet};

/// How far behind a session's newest counter a receiver still tells new datagrams from repeated ones.
const WINDOW: u64 = 8_128;
/// Type, receiver index, counter, and the tag of an empty packet (WireGuard paper, section 5.4.6).
const EMPTY: usize = 32;

/// The datagrams sent to an end, by the class in which it must count them.
///
/// An altered datagram counts only as [`altered`](Self::altered).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Data messages with a packet, sent for the first time.
    pub(crate) packets: u64,
    /// Keepalives sent for the first time.
    pub(crate) keepalives: u64,
    /// Data messages sent again.
    pub(crate) repeated: u64,
    /// Data messages more than 8,128 counters behind the newest of their session.
    pub(crate) behind_window: u64,
    /// Datagrams that the relay changed.
    pub(crate) altered: u64,
    /// Handshake messages and anything else.
    pub(crate) others: u64,
}

/// Takes the census of passing datagrams.
#[derive(Debug, Default)]
pub(super) struct Registrar {
    pub(super) census: Census,
    /// By receiver index.
    sessions: HashMap<u32, Session>,
}

#[derive(Debug, Default)]
struct Session {
    newest: u64,
    seen: HashSet<u64>,
}

impl Registrar {
    /// Counts `datagram`, which is being sent.
    pub(super) fn count(&mut self, datagram: &[u8], is_altered: bool) {
        let census = &mut self.census;
        let field = match data_message(datagram) {
            _ if is_altered => &mut census.altered,
            None => &mut census.others,
            Some((receiver, counter)) => {
                let session = self.sessions.entry(receiver).or_default();
                session.newest = session.newest.max(counter);
                if counter + WINDOW < session.newest {
                    &mut census.behind_window
                } else if !session.seen.insert(counter) {
                    &mut census.repeated
                } else if datagram.len() == EMPTY {
                    &mut census.keepalives
                } else {
                    &mut census.packets
                }
            }
        };
        *field += 1;
    }
}

/// The receiver index and the counter of a data message.
fn data_message(datagram: &[u8]) -> Option<(u32, u64)> {
    let rest = datagram.strip_prefix(&[4, 0, 0, 0])?;
    let (receiver, rest) = rest.split_first_chunk()?;
    let (counter, tag) = rest.split_first_chunk()?;
    let is_whole = tag.len() >= EMPTY - 16;
    is_whole.then(|| (u32::from_le_bytes(*receiver), u64::from_le_bytes(*counter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(receiver: u32, counter: u64, payload: usize) -> Vec<u8> {
        let (receiver, counter) = (receiver.to_le_bytes(), counter.to_le_bytes());
        [
            &[4, 0, 0, 0],
            &receiver[..],
            &counter,
            &vec![0; 16 + payload],
        ]
        .concat()
    }

    fn census(datagrams: &[(Vec<u8>, bool)]) -> Census {
        let mut registrar = Registrar::default();
        for (datagram, is_altered) in datagrams {
            registrar.count(datagram, *is_altered);
        }
        registrar.census
    }

    #[test]
    fn every_kind_has_its_place_and_the_window_has_the_edge_of_the_protocol() {
        let found = census(&[
            (data(1, 0, 16), false),
            (data(1, 1, 0), false),
            (data(1, 1, 0), false),
            (data(1, 2, 16), true),
            (data(1, 2, 16), false),
            (data(2, 0, 16), false),
            (vec![1; 148], false),
            (data(1, 3, 0)[..31].to_vec(), false),
            (data(2, 50_000, 16), false),
            (data(2, 50_000 - WINDOW, 16), false),
            (data(2, 50_000 - WINDOW - 1, 16), false),
        ]);
        let expected = Census {
            packets: 5,
            keepalives: 1,
            repeated: 1,
            behind_window: 1,
            altered: 1,
            others: 2,
        };
        assert_eq!(found, expected);
    }
}
