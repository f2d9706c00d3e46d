//! A connection of the model.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use convoy_fuzz::{Result, Unstructured};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// Payload of a segment.
const MOST: usize = 1_380;
/// Segments at once.
const BURST: usize = 20;

/// A connection, as its peer sees it. Positions are those of bytes in its streams.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: Tuple,
    /// The sequence numbers of both SYNs; the stack's is known once it has answered.
    first: u32,
    first_of_stack: Option<u32>,
    pub(super) stream: Option<Stream>,
    /// The peer's stream: its length, what the stack has acknowledged and makes room for, and what was read of it.
    length: usize,
    acknowledged: usize,
    room: usize,
    read: usize,
    has_read_end: bool,
    /// The stack's stream: what was written, what has arrived, and the highest position that it may send.
    written: usize,
    is_shut: bool,
    arrived: usize,
    limit: usize,
    pub(super) may_be_reset: bool,
    pub(super) is_over: bool,
}

impl Connection {
    /// A connection whose first segment's number is `first`.
    pub(super) fn new(ends: Tuple, first: u32, length: usize) -> Self {
        Self {
            ends,
            first,
            first_of_stack: None,
            stream: None,
            length,
            acknowledged: 0,
            room: 0,
            read: 0,
            has_read_end: false,
            written: 0,
            is_shut: false,
            arrived: 0,
            limit: usize::from(u16::MAX),
            may_be_reset: false,
            is_over: false,
        }
    }

    /// A segment of any kind, most of them near those that are expected.
    pub(super) fn send_any(&mut self, wire: &Wire, input: &mut Unstructured<'_>) -> Result<()> {
        let near = (self.acknowledged + 2_000).saturating_sub(input.int_in_range(0..=4_000)?);
        let from = near.min(self.length);
        let to = self.length.min(from + input.int_in_range(0..=MOST)?);
        let window = *input.choose(&[0, 1, 700, u16::MAX])?;
        let stale = input.int_in_range(0..=3_000)?;
        let acknowledged = match input.int_in_range(0..=7)? {
            0 => self.arrived.saturating_sub(stale),
            1 => self.arrived + 1 + stale,
            _ => self.arrived,
        };
        self.limit = self.limit.max(acknowledged + usize::from(window));
        let mut sequence = self.sequence(from);
        let mut flags = ACK;
        match input.int_in_range(0..=15)? {
            0 => {
                flags = *input.choose(&[RST, RST | ACK])?;
                self.may_be_reset = true;
            }
            1 => {
                // Behind everything that the window may hold.
                flags = *input.choose(&[RST, RST | ACK, SYN, FIN | ACK])?;
                sequence = sequence.wrapping_add(1 << 30);
            }
            2 if !self.may_be_reset => {
                flags = *input.choose(&[SYN, SYN | ACK])?;
                sequence = *input.choose(&[self.first, sequence])?;
            }
            3 => flags = input.int_in_range(0..=63)? & !(RST | FIN | SYN),
            4..=7 if to == self.length => flags |= FIN,
            _ => flags |= PSH,
        }
        if self.may_be_reset {
            // It might begin another connection.
            flags &= !SYN;
        }
        let acknowledged = self.acknowledgement(acknowledged);
        // A SYN takes a sequence number, so that payload would be one byte further.
        let to = if flags & SYN == 0 { to } else { from };
        let payload = pattern(from, to, self.first);
        wire.send(&self.packet(flags, sequence, acknowledged, window, &payload));
        Ok(())
    }

    /// Sends what the stack does not have yet.
    pub(super) fn send_rest(&mut self, wire: &Wire) {
        let acknowledged = self.acknowledgement(self.arrived);
        self.limit = self.limit.max(self.arrived + usize::from(u16::MAX));
        let (mut from, room) = (self.acknowledged, self.acknowledged + self.room);
        for _ in 0..BURST {
            let to = self.length.min(from + MOST).min(room).max(from);
            let end = if to == self.length { FIN } else { 0 };
            let payload = pattern(from, to, self.first);
            let sequence = self.sequence(from);
            wire.send(&self.packet(ACK | end, sequence, acknowledged, u16::MAX, &payload));
            if to == from || to == self.length {
                return;
            }
            from = to;
        }
    }

    /// A segment of the stack.
    pub(super) fn receive(&mut self, segment: &Segment, payload: &[u8]) {
        if segment.has(SYN) {
            assert!(segment.has(ACK));
            assert_eq!(
                segment.acknowledged,
                self.first.wrapping_add(1),
                "{segment:?}: {self:?}"
            );
            let first = *self.first_of_stack.get_or_insert(segment.sequence);
            assert_eq!(first, segment.sequence);
            return;
        }
        let Some(first) = self.first_of_stack.filter(|_| !segment.has(RST)) else {
            return;
        };
        let acknowledged = segment
            .acknowledged
            .wrapping_sub(self.first.wrapping_add(1)) as usize;
        assert!(acknowledged <= self.length + 1, "never sent");
        if acknowledged >= self.acknowledged {
            let (edge, room) = (self.acknowledged + self.room, segment.window.into());
            assert!(acknowledged + room >= edge, "{segment:?}: {self:?}");
            (self.acknowledged, self.room) = (acknowledged, room);
        }
        // A keepalive begins one byte before.
        let from = segment.sequence.wrapping_sub(first.wrapping_add(1)) as i32;
        let Ok(from) = usize::try_from(from) else {
            return;
        };
        let to = from + payload.len();
        let end = self.written + usize::from(self.is_shut && payload.is_empty());
        assert!(to <= end.min(self.limit + 1), "{segment:?}: {self:?}");
        assert_eq!(payload, pattern(from, to, !self.first));
        if segment.has(FIN) {
            assert!(self.is_shut && to == self.written);
        }
        assert!(
            from <= self.arrived,
            "bytes are missing: {segment:?}: {self:?}"
        );
        self.arrived = self.arrived.max(to + usize::from(segment.has(FIN)));
    }

    pub(super) fn read(&mut self, most: usize) {
        let mut left = most;
        while let Some(stream) = self.stream.as_mut().filter(|_| left > 0) {
            let mut buffer = [0; 4_096];
            let mut buffer = ReadBuf::new(&mut buffer[..left.min(4_096)]);
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(stream).poll_read(&mut context, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => {
                    assert!(self.may_be_reset, "{error}");
                    return;
                }
                Poll::Ready(Ok(())) => {}
            }
            let read = buffer.filled();
            let end = self.read + read.len();
            assert_eq!(read, pattern(self.read, end, self.first));
            assert!(end <= self.length);
            self.read = end;
            if read.is_empty() {
                assert_eq!(self.read, self.length);
                self.has_read_end = true;
                return;
            }
            left -= read.len();
        }
    }

    pub(super) fn write(&mut self, most: usize) {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.is_shut) else {
            return;
        };
        let bytes = pattern(self.written, self.written + most, !self.first);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_write(&mut context, &bytes) {
            Poll::Pending => {}
            Poll::Ready(Ok(length)) => self.written += length,
            Poll::Ready(Err(error)) => assert!(self.may_be_reset, "{error}"),
        }
    }

    pub(super) fn shut(&mut self) {
        if let Some(stream) = &mut self.stream {
            let mut context = Context::from_waker(Waker::noop());
            let _ = Pin::new(stream).poll_shutdown(&mut context);
            self.is_shut = true;
        }
    }

    /// Returns whether both streams have arrived with their ends, and both ends were acknowledged.
    pub(super) fn is_complete(&self) -> bool {
        let is_sent = self.acknowledged == self.length + 1 && self.has_read_end;
        is_sent && self.is_shut && self.arrived == self.written + 1
    }

    fn sequence(&self, position: usize) -> u32 {
        self.first.wrapping_add(1).wrapping_add(position as u32)
    }

    fn acknowledgement(&self, position: usize) -> u32 {
        let first = self.first_of_stack.unwrap_or_default();
        first.wrapping_add(1).wrapping_add(position as u32)
    }

    pub(super) fn packet(
        &self,
        flags: u8,
        sequence: u32,
        acknowledged: u32,
        window: u16,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        bytes[0..2].copy_from_slice(&self.ends.local.port().to_be_bytes());
        bytes[2..4].copy_from_slice(&self.ends.remote.port().to_be_bytes());
        bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        (bytes[12], bytes[13]) = (5 << 4, flags);
        bytes[14..16].copy_from_slice(&window.to_be_bytes());
        bytes.extend(payload);
        let [from, to] = [self.ends.local, self.ends.remote].map(|it| it.ip().to_string());
        packet(&from, &to, TCP, &bytes, 16)
    }
}

/// The bytes of a stream between two positions.
fn pattern(from: usize, to: usize, seed: u32) -> Vec<u8> {
    let byte = |at: usize| (at as u32).wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 24;
    (from..to).map(|at| byte(at) as u8).collect()
}
