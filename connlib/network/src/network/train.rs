//! Datagrams that can be sent together.

use std::{
    iter,
    net::{IpAddr, SocketAddr},
};

/// Most datagrams that are joined: `UDP_MAX_SEGMENTS` of Linux before 6.9.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Most bytes that are joined: the longest payload over IPv4.
const MAX_BYTES: usize = 65_507;

/// Datagrams from one sender that one call may send: all have one length, except that the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    storage: &'a [u8],
    /// At least one, and at most [`MAX_SEGMENTS`].
    messages: &'a [Message],
    segments: usize,
    bytes: usize,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of it that fit.
    pub length: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The traffic class: DSCP and ECN.
    pub class: u8,
}

/// A message that arrived as one: a datagram, or several that the kernel had joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) from: SocketAddr,
    /// The address of this host that it was sent to, where the socket was asked to say so.
    pub(super) to: Option<IpAddr>,
    /// Where it begins in the storage.
    pub(super) start: usize,
    pub(super) length: usize,
    /// The length of all its datagrams, except that the last may be shorter.
    pub(super) segment_len: usize,
    /// The traffic class that they arrived with: DSCP and ECN (RFC 2474, RFC 3168).
    pub(super) class: u8,
}

impl Message {
    /// A single datagram.
    pub(super) fn one(from: SocketAddr, start: usize, length: usize) -> Self {
        Self {
            from,
            to: None,
            start,
            length,
            segment_len: length,
            class: 0,
        }
    }

    /// The same with a traffic class.
    pub(super) fn with_class(self, class: u8) -> Self {
        Self { class, ..self }
    }

    /// Returns where each of its datagrams begins.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = usize> {
        let (start, segment_len) = (self.start, self.segment_len);
        (0..self.segments()).map(move |index| start + index * segment_len)
    }

    fn segments(&self) -> usize {
        // An empty datagram is one.
        self.length.div_ceil(self.segment_len.max(1)).max(1)
    }
}

/// Joins messages, in their order, into as few trains as possible.
pub(super) fn join<'a>(
    storage: &'a [u8],
    mut messages: &'a [Message],
) -> impl Iterator<Item = Train<'a>> {
    iter::from_fn(move || {
        let train = Train::longest(storage, messages)?;
        messages = &messages[train.messages.len()..];
        Some(train)
    })
}

impl<'a> Train<'a> {
    /// The longest train that the first messages make; `None` if there are none.
    fn longest(storage: &'a [u8], messages: &'a [Message]) -> Option<Self> {
        let first = messages.first()?;
        let mut train = Self {
            storage,
            messages: &messages[..1],
            segments: first.segments(),
            bytes: first.length,
        };
        while let Some(next) = messages.get(train.messages.len())
            && train.can_append(next)
        {
            train.messages = &messages[..=train.messages.len()];
            train.segments += next.segments();
            train.bytes += next.length;
        }
        Some(train)
    }

    fn can_append(&self, next: &Message) -> bool {
        let is_same_sender = next.from == self.from() && next.to == self.to();
        let is_same_class = next.class == self.class();
        // The kernel cuts at equal distances, so nothing may follow a shorter datagram.
        let ends_whole = self.bytes == self.segments * self.segment_len();
        let is_shorter = next.segments() == 1 && (1..self.segment_len()).contains(&next.length);
        let has_length = next.length > 0 && next.segment_len == self.segment_len();
        let fits_one_call = self.segments + next.segments() <= MAX_SEGMENTS
            && self.bytes + next.length <= MAX_BYTES;
        is_same_sender && is_same_class && ends_whole && (is_shorter || has_length) && fits_one_call
    }

    /// Returns the sender's address.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.messages[0].from
    }

    /// The address of this host that it was sent to, if that is known.
    pub fn to(&self) -> Option<IpAddr> {
        self.messages[0].to
    }

    /// The traffic class of all datagrams, which whoever passes them on keeps: DSCP and ECN.
    #[must_use]
    pub fn class(&self) -> u8 {
        self.messages[0].class
    }

    /// The length of every datagram but the last.
    #[must_use]
    pub fn segment_len(&self) -> usize {
        self.messages[0].segment_len
    }

    /// Returns the number of its datagrams.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// The bytes of all datagrams together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All bytes in order, in pieces of whole datagrams.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let storage = self.storage;
        let bytes = move |it: &Message| &storage[it.start..][..it.length];
        self.messages.iter().map(bytes)
    }

    /// The datagrams in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> {
        let segment_len = self.segment_len().max(1);
        let empty = (self.bytes == 0).then_some(&[][..]);
        let cut = self.pieces().flat_map(move |it| it.chunks(segment_len));
        empty.into_iter().chain(cut)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shorter_datagram_ends_a_train_and_a_longer_one_begins_another() {
        let lengths = [3, 3, 2, 3, 3, 4, 4, 1, 1];
        let expected: &[&[usize]] = &[&[3, 3, 2], &[3, 3], &[4, 4, 1], &[1]];
        assert_eq!(trains(&lengths.map(|length| (length, length))), expected);
    }

    #[test]
    fn an_empty_datagram_travels_alone() {
        let lengths = [0, 0, 5, 0, 5];
        let expected: &[&[usize]] = &[&[0], &[0], &[5], &[0], &[5]];
        assert_eq!(trains(&lengths.map(|length| (length, length))), expected);
    }

    #[test]
    fn joined_messages_are_joined_further_while_they_are_cut_at_the_same_distance() {
        let messages = [(6, 3), (9, 3), (5, 3), (3, 3), (4, 2), (2, 2)];
        let expected: &[&[usize]] = &[&[3, 3, 3, 3, 3, 3, 2], &[3], &[2, 2, 2]];
        assert_eq!(trains(&messages), expected);
    }

    #[test]
    fn datagrams_of_two_classes_travel_apart_and_in_order() {
        let classes = [1, 1, 3, 3, 1];
        let message = |class| message(0, 0, (3, 3)).with_class(class);
        let messages = classes.map(message);
        let storage = [0; 3];
        let trains = join(&storage, &messages).map(|it| (it.class(), it.segments()));
        assert_eq!(trains.collect::<Vec<_>>(), [(1, 2), (3, 2), (1, 1)]);
    }

    #[test]
    fn no_train_is_longer_than_one_call_can_send() {
        let lengths = |messages: &[_]| trains(messages).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[(1, 1); 150]), [64, 64, 22]);
        assert_eq!(lengths(&[(30_000, 30_000); 5]), [2, 2, 1]);
        // What the kernel has joined stays so, whatever its own bounds are.
        assert_eq!(lengths(&[(128, 1), (1, 1)]), [128, 1]);
    }

    proptest! {
        #[test]
        fn trains_have_the_same_datagrams_in_the_same_order(
            shapes in prop::collection::vec((0..2_u16, 0..20_usize, 1..8_usize), 0..80),
        ) {
            let storage: Vec<u8> = (0..=255).cycle().take(20 * 80).collect();
            let mut messages = Vec::new();
            let mut expected = Vec::new();
            for (index, (sender, length, segment_len)) in shapes.into_iter().enumerate() {
                let it = message(sender, 20 * index, (length, segment_len));
                messages.push(it);
                match &storage[it.start..][..it.length] {
                    [] => expected.push((it.from, &[][..])),
                    bytes => expected.extend(bytes.chunks(segment_len).map(|one| (it.from, one))),
                }
            }
            let mut found = Vec::new();
            for train in join(&storage, &messages) {
                let before = found.len();
                found.extend(train.datagrams().map(|one| (train.from(), one)));
                let lengths: Vec<_> = found[before..].iter().map(|(_, one)| one.len()).collect();
                prop_assert_eq!(lengths.len(), train.segments());
                prop_assert_eq!(lengths.iter().sum::<usize>(), train.bytes());
                let (last, others) = lengths.split_last().unwrap();
                prop_assert!(others.iter().all(|it| *it == train.segment_len()));
                prop_assert!(*last <= train.segment_len());
            }
            prop_assert_eq!(found, expected);
        }
    }

    /// The lengths of each train's datagrams; a message is given by its length and that of its datagrams.
    fn trains(messages: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let storage = vec![0; 30_000];
        let messages: Vec<_> = messages.iter().map(|it| message(0, 0, *it)).collect();
        join(&storage, &messages)
            .map(|train| train.datagrams().map(<[u8]>::len).collect())
            .collect()
    }

    fn message(sender: u16, start: usize, (length, segment_len): (usize, usize)) -> Message {
        Message {
            from: ([10, 0, 0, 1], sender).into(),
            to: None,
            start,
            length,
            segment_len: segment_len.min(length),
            class: 0,
        }
    }
}
