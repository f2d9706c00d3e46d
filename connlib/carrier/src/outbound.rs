//! Frames that wait to be sent.

use convoy_turn::{frame_len, padding};
use thiserror::Error;

/// Most bytes that wait for the socket. Further frames are refused, and the caller counts the drop.
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
    /// Whole frames: those that wait, and the sent ones before them that have not been removed yet.
    bytes: Vec<u8>,
    sent: usize,
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
        let needed = frame.len() + padding;
        if self.bytes.len() + needed > MAX_OUTBOUND {
            self.remove_sent();
        }
        let is_full = self.bytes.len() + needed > MAX_OUTBOUND;
        if is_full || self.waiting().len() + needed > limit {
            return Err(Full);
        }
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(MAX_OUTBOUND);
        }
        self.bytes.extend_from_slice(frame);
        self.bytes.resize(self.bytes.len() + padding, 0);
        Ok(())
    }

    /// Removes the frames that the socket has taken whole.
    fn remove_sent(&mut self) {
        let ends = self.ends().take_while(|end| *end <= self.sent);
        let removed = ends.last().unwrap_or(0);
        self.bytes.drain(..removed);
        self.sent -= removed;
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
            start += frame_len(self.bytes.get(start..)?).ok().flatten()?;
            Some(start)
        })
    }

    /// Removes the oldest `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
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
        // More than the room for control messages: sent frames are removed, once while the next one is sent in part.
        let many = RESERVED / size + 3;
        for step in [many * size + 2, 0, size, many * size - 2] {
            while outbound.append(&frame).is_ok() {
                waiting += size;
            }
            assert_eq!(outbound.waiting().len(), waiting);
            assert_eq!(outbound.count(), waiting.div_ceil(size));
            outbound.advance(step);
            waiting -= step;
            assert_eq!(outbound.count(), waiting.div_ceil(size));
        }
        assert!(outbound.bytes.capacity() <= MAX_OUTBOUND);
        outbound.advance(waiting);
        assert_eq!(outbound.count(), 0);
        outbound.append(&frame).unwrap();
        assert_eq!(outbound.count(), 1);
    }

    #[test]
    fn a_full_buffer_refuses_whole_frames() {
        let mut outbound = Outbound::default();
        let frame = [&[0x40, 0, 0x03, 0xE4][..], &[7; 996]].concat();
        let room = (MAX_OUTBOUND - RESERVED) / frame.len();
        let appended = (0..room + 3).filter(|_| outbound.append(&frame).is_ok());
        assert_eq!(appended.count(), room);
        outbound.advance(1_000);
        outbound.append(&frame).unwrap();
        assert!(outbound.bytes.capacity() <= MAX_OUTBOUND);
    }
}
