//! Frames that wait to be sent.

use convoy_turn::{frame_len, padding};
use thiserror::Error;

/// Most bytes that wait for the socket. Further frames are dropped, as a full router would do.
pub const MAX_OUTBOUND: usize = 256 << 10;

/// Part of it, in bytes, that data leaves to control messages: else a stream that is always full would never get one out.
const RESERVED: usize = 16 << 10;

/// There is no room for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stream has no room")]
pub struct Full;

/// The bytes of whole frames, of which the socket may have taken the first.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    bytes: Vec<u8>,
    /// The first of them that end a frame whose beginning has been removed.
    tail: usize,
    sent: usize,
    dropped: u64,
}

impl Outbound {
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<(), Full> {
        self.append_within(MAX_OUTBOUND - RESERVED, frame)
    }

    pub(crate) fn append_control(&mut self, frame: &[u8]) -> Result<(), Full> {
        self.append_within(MAX_OUTBOUND, frame)
    }

    fn append_within(&mut self, limit: usize, frame: &[u8]) -> Result<(), Full> {
        let padding = padding(frame.len());
        if self.waiting().len() + frame.len() + padding > limit {
            self.refuse();
            return Err(Full);
        }
        if self.bytes.len() + frame.len() + padding > MAX_OUTBOUND {
            // At most once for each time that the socket has taken something.
            let first_end = self.ends().find(|end| *end >= self.sent);
            self.tail = first_end.unwrap_or(self.sent) - self.sent;
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(MAX_OUTBOUND);
        }
        self.bytes.extend_from_slice(frame);
        self.bytes.resize(self.bytes.len() + padding, 0);
        Ok(())
    }

    /// Counts a frame that is dropped.
    pub(crate) fn refuse(&mut self) {
        self.dropped += 1;
    }

    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Returns the number of frames that wait, one of them perhaps in part.
    pub(crate) fn count(&self) -> usize {
        self.ends().filter(|end| *end > self.sent).count()
    }

    /// The ends of all frames, of those sent as well.
    fn ends(&self) -> impl Iterator<Item = usize> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let rest = self.bytes.get(start..)?;
            start += match self.tail {
                tail @ 1.. if start == 0 => tail,
                _ => frame_len(rest).ok().flatten()?,
            };
            Some(start)
        })
    }

    /// Removes the oldest `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            (self.tail, self.sent) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_padded_and_keep_their_order() {
        let mut outbound = Outbound::default();
        outbound.append(b"abcde").unwrap();
        outbound.append(b"fghi").unwrap();
        assert_eq!(outbound.waiting(), b"abcde\0\0\0fghi");
        outbound.advance(2);
        assert_eq!(outbound.waiting(), b"cde\0\0\0fghi");
        outbound.advance(8);
        outbound.append(b"jklm").unwrap();
        assert_eq!(outbound.waiting(), b"hijklm"[..].to_vec());
        outbound.advance(6);
        assert!(outbound.waiting().is_empty());
    }

    #[test]
    fn data_leaves_room_for_control_messages() {
        let mut outbound = Outbound::default();
        while outbound.append(&[0x40; 1_000]).is_ok() {}
        for _ in 0..RESERVED / 200 {
            outbound.append_control(&[0; 200]).unwrap();
        }
        while outbound.append_control(&[0; 200]).is_ok() {}
        assert!(outbound.waiting().len() <= MAX_OUTBOUND);
    }

    #[test]
    fn frames_that_wait_are_counted_wherever_the_socket_has_stopped() {
        let mut outbound = Outbound::default();
        let frame = [&[0x40, 0, 0x03, 0xE5][..], &[7; 997]].concat();
        let size = frame.len().next_multiple_of(4);
        let mut waiting = 0;
        // The buffer is made anew twice, once within a frame.
        for step in [3 * size + 2, 0, size, 7 * size - 2] {
            while outbound.append(&frame).is_ok() {
                waiting += size;
            }
            assert_eq!(outbound.count(), waiting.div_ceil(size));
            outbound.advance(step);
            waiting -= step;
            assert_eq!(outbound.count(), waiting.div_ceil(size));
        }
        outbound.advance(waiting);
        assert_eq!(outbound.count(), 0);
        outbound.append(&frame).unwrap();
        assert_eq!(outbound.count(), 1);
    }

    #[test]
    fn a_full_buffer_drops_whole_frames_and_counts_them() {
        let mut outbound = Outbound::default();
        let frame = [0x40; 1_000];
        let room = (MAX_OUTBOUND - RESERVED) / frame.len();
        let appended = (0..room + 3).filter(|_| outbound.append(&frame).is_ok());
        assert_eq!(appended.count(), room);
        assert_eq!(outbound.take_dropped(), 3);
        assert_eq!(outbound.take_dropped(), 0);
        outbound.advance(1_000);
        outbound.append(&frame).unwrap();
        assert!(outbound.bytes.capacity() <= MAX_OUTBOUND);
    }
}
