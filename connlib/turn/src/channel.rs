//! ChannelData (RFC 8656 §12.4): four bytes ahead of each datagram.

use crate::error::NotTurn;

/// Length of the header ahead of each datagram, in bytes.
pub const HEADER_LEN: usize = 4;
/// Length of a STUN message without attributes, in bytes (RFC 8489 §5).
const STUN_HEADER_LEN: usize = 20;
/// Boundary that messages in a stream are padded to, in bytes.
const ALIGNMENT: usize = 4;

/// The number of a channel: 0x4000 to 0x4FFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelNumber(u16);

impl ChannelNumber {
    /// Returns the number if it is one of a channel.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (0x4000..=0x4FFF).contains(&number).then_some(Self(number))
    }

    /// All numbers, from the lowest.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0x4000..=0x4FFF).map(Self)
    }

    /// The number on the wire.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

/// Makes the header for a datagram of `len` bytes, at most 65,535.
#[must_use]
pub fn header(channel: ChannelNumber, len: usize) -> [u8; HEADER_LEN] {
    let [c0, c1] = channel.0.to_be_bytes();
    let [l0, l1] = (len as u16).to_be_bytes();
    [c0, c1, l0, l1]
}

/// Reads the channel and the datagram out of ChannelData; `None` for anything else. Padding may follow.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<(ChannelNumber, &[u8])> {
    let (&[c0, c1, l0, l1], rest) = bytes.split_first_chunk()?;
    let channel = ChannelNumber::new(u16::from_be_bytes([c0, c1]))?;
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    rest.get(..len).map(|datagram| (channel, datagram))
}

/// Number of bytes that pad a frame of `len` bytes in a stream.
#[must_use]
pub fn padding(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT) - len
}

/// Length of the frame that `stream` begins with, padding included; `None` until its header has arrived.
/// A frame is at most 65,556 bytes long.
///
/// # Errors
/// [`NotTurn`] if the stream carries something else: it cannot be read any further.
pub fn frame_len(stream: &[u8]) -> Result<Option<usize>, NotTurn> {
    let Some(&first) = stream.first() else {
        return Ok(None);
    };
    let is_channel = (0x40..=0x4F).contains(&first);
    let is_stun = first & 0xC0 == 0;
    if !is_channel && !is_stun {
        return Err(NotTurn);
    }
    let Some(&[_, _, l0, l1]) = stream.first_chunk() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    match is_channel {
        true => Ok(Some(HEADER_LEN + len + padding(len))),
        // Attributes are padded, so the length of a message is a multiple of four.
        false if padding(len) == 0 => Ok(Some(STUN_HEADER_LEN + len)),
        false => Err(NotTurn),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn channel(number: u16) -> ChannelNumber {
        ChannelNumber::new(number).expect("a channel")
    }

    #[test]
    fn a_datagram_comes_back_from_its_channel_data_with_and_without_padding() {
        for datagram in [&b""[..], b"a", b"abcd", b"abcdefg"] {
            let mut frame = header(channel(0x4003), datagram.len()).to_vec();
            frame.extend_from_slice(datagram);
            assert_eq!(parse(&frame), Some((channel(0x4003), datagram)));
            frame.resize(frame.len() + padding(datagram.len()), 0);
            assert_eq!(parse(&frame), Some((channel(0x4003), datagram)));
            assert_eq!(frame_len(&frame), Ok(Some(frame.len())));
        }
    }

    #[test]
    fn channel_data_shorter_than_it_says_and_reserved_channels_are_refused() {
        assert_eq!(parse(&[0x40, 0, 0, 2, 1]), None);
        assert_eq!(parse(&[0x40, 0, 0]), None);
        assert_eq!(parse(&[0x3F, 0xFF, 0, 0]), None);
        assert_eq!(parse(&[0x50, 0, 0, 0]), None);
    }

    #[test]
    fn a_stream_that_carries_no_turn_is_refused_at_its_first_byte() {
        assert_eq!(frame_len(b""), Ok(None));
        assert_eq!(frame_len(b"SSH-2.0"), Err(NotTurn));
        assert_eq!(frame_len(b"\x16\x03"), Ok(None));
        assert_eq!(frame_len(&[0x50, 0]), Err(NotTurn));
        // A STUN message whose length is no multiple of four.
        assert_eq!(frame_len(&[0x01, 0x03, 0, 3]), Err(NotTurn));
        assert_eq!(frame_len(&[0x01, 0x03, 0, 8]), Ok(Some(28)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some((_, datagram)) = parse(&bytes) {
                prop_assert!(datagram.len() + HEADER_LEN <= bytes.len());
            }
            if let Ok(Some(len)) = frame_len(&bytes) {
                prop_assert!((HEADER_LEN..=65_556).contains(&len));
            }
        }
    }
}
