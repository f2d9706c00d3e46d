//! Bytes that have arrived, until they are whole frames.

use convoy_turn::{NotTurn, frame_len};

/// Most bytes that wait to be taken, from the longest frame up. Further ones stay in the socket's buffer.
pub const MAX_INBOUND: usize = 128 << 10;

/// Longest frame in bytes: a STUN message.
const LONGEST_FRAME: usize = 65_556;

/// Room in bytes below which what waits is moved to the front of the buffer: the longest TLS record.
const LEAST_ROOM: usize = 16 << 10;

const _: () = assert!(MAX_INBOUND > LONGEST_FRAME);

/// The bytes, of which the first frames are whole.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Made when the first bytes arrive: most streams never open.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Length of the oldest frame, if it is whole.
    first: Option<usize>,
}

impl Inbound {
    /// Number of bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.first.is_some()
    }

    /// Room for further bytes; commit what is used of it.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; MAX_INBOUND].into();
        }
        if self.start > 0 && MAX_INBOUND - self.end < LEAST_ROOM {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
        &mut self.bytes[self.end..]
    }

    /// Returns whether [`Self::room`] would be empty.
    pub(crate) fn is_full(&self) -> bool {
        self.len() == MAX_INBOUND
    }

    /// Takes `count` bytes of [`Self::room`] as arrived.
    pub(crate) fn commit(&mut self, count: usize) {
        self.end += count;
        if self.first.is_none() {
            self.find_first();
        }
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[self.start..self.end];
        std::iter::from_fn(move || {
            let len = frame_len(rest).ok().flatten()?;
            let (frame, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(frame)
        })
    }

    pub(crate) fn advance(&mut self) {
        if let Some(len) = self.first.take() {
            self.start += len;
            self.find_first();
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Checks that the oldest bytes are a frame, or can become one.
    pub(crate) fn check(&self) -> Result<(), NotTurn> {
        frame_len(&self.bytes[self.start..self.end]).map(drop)
    }

    fn find_first(&mut self) {
        let waiting = &self.bytes[self.start..self.end];
        let len = frame_len(waiting).ok().flatten();
        self.first = len.filter(|len| *len <= waiting.len());
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_frame_fits_after_a_whole_one() {
        let mut stream = channel_data(0, 100);
        let mut longest = vec![0, 1, 0xFF, 0xFC];
        longest.resize(20 + 0xFFFC, 7);
        stream.extend_from_slice(&longest);
        let mut inbound = Inbound::default();
        for part in stream.chunks(30_000) {
            fill(&mut inbound, part);
        }
        let lengths: Vec<_> = inbound.frames().map(|it| it.len()).collect();
        assert_eq!(lengths, [104, longest.len()]);
    }

    #[test]
    fn frames_before_nonsense_can_be_taken() {
        let mut inbound = Inbound::default();
        fill(&mut inbound, &channel_data(1, 4));
        fill(&mut inbound, b"SSH-2.0");
        assert_eq!(inbound.frames().count(), 1);
        inbound.check().unwrap();
        inbound.advance();
        assert_eq!(inbound.frames().count(), 0);
        inbound.check().unwrap_err();
        inbound.advance();
        assert!(!inbound.has_frame());
    }

    proptest! {
        #[test]
        fn a_stream_cut_anywhere_has_the_same_frames(
            lengths in prop::collection::vec(0..3_000_usize, 1..200),
            cuts in prop::collection::vec(1..40_000_usize, 1..50),
            takes in prop::collection::vec(0..8_usize, 1..50),
        ) {
            let mut numbered = lengths.iter().enumerate();
            let expected: Vec<_> =
                numbered.by_ref().map(|(n, len)| channel_data(n, *len)).collect();
            let stream = expected.concat();
            let (mut rest, mut cuts, mut takes) =
                (&stream[..], cuts.iter().cycle(), takes.iter().cycle());
            let mut inbound = Inbound::default();
            let mut found = Vec::new();
            while found.len() < expected.len() {
                let cut = *cuts.next().unwrap();
                let part = cut.min(rest.len()).min(inbound.room().len());
                fill(&mut inbound, &rest[..part]);
                rest = &rest[part..];
                // Progress is certain once the buffer is full, or all has arrived.
                let is_last = rest.is_empty() || inbound.is_full();
                let take = *takes.next().unwrap() + usize::from(is_last);
                let taken: Vec<_> = inbound.frames().take(take).map(|it| it.to_vec()).collect();
                for frame in taken {
                    prop_assert!(inbound.has_frame());
                    inbound.advance();
                    found.push(frame);
                }
                inbound.check().unwrap();
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(inbound.len(), 0);
        }
    }

    fn fill(inbound: &mut Inbound, bytes: &[u8]) {
        inbound.room()[..bytes.len()].copy_from_slice(bytes);
        inbound.commit(bytes.len());
    }

    fn channel_data(n: usize, len: usize) -> Vec<u8> {
        let mut frame = vec![0x40, 0, (len >> 8) as u8, len as u8];
        frame.resize((4 + len).next_multiple_of(4), n as u8);
        frame
    }
}
