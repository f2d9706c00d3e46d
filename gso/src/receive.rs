//! The buffers that `recvmmsg` fills, and the datagrams in them.

use std::io::IoSliceMut;

use convoy_types::{Arrival, Datagram};
use quinn_udp::RecvMeta;

/// Most buffers that one receive call fills.
pub const RECEIVE_BUFFERS: usize = 32;
/// Bytes of a buffer: no datagram, and no batch that UDP GRO has coalesced, is longer.
pub const RECEIVE_BUFFER_BYTES: usize = 65_535;

const _: () = assert!(RECEIVE_BUFFERS <= quinn_udp::BATCH_SIZE);

/// The datagrams of one receive call, with a cursor: handling them may take several ticks.
pub struct ReceiveBuffers {
    storage: Box<[u8]>,
    meta: [RecvMeta; RECEIVE_BUFFERS],
    received: usize,
    cursor: Cursor,
}

/// The position of the next datagram: its buffer, and its offset there.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    current: usize,
    offset: usize,
}

impl Cursor {
    fn advance(&mut self, meta: &RecvMeta) {
        self.offset += stride(meta);
        if self.offset >= meta.len {
            self.current += 1;
            self.offset = 0;
        }
    }
}

impl std::fmt::Debug for ReceiveBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveBuffers")
            .field("received", &self.received)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self {
            storage: vec![0; RECEIVE_BUFFERS * RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            meta: [RecvMeta::default(); RECEIVE_BUFFERS],
            received: 0,
            cursor: Cursor::default(),
        }
    }
}

impl ReceiveBuffers {
    /// Returns whether all datagrams have been handled, so that the buffers can be filled again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.cursor.current == self.received
    }

    /// Returns whether the receive call filled every buffer, so that more may be waiting.
    #[must_use]
    pub fn are_full(&self) -> bool {
        self.received == RECEIVE_BUFFERS
    }

    /// Fills the buffers by calling `receive`; if it fails, they are empty.
    pub(crate) fn fill<E>(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        (self.received, self.cursor) = (0, Cursor::default());
        let mut chunks = self.storage.chunks_exact_mut(RECEIVE_BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; RECEIVE_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.received = receive(&mut slices, &mut self.meta)?;
        Ok(self.received)
    }

    /// The number of datagrams in each received buffer.
    pub fn segments_per_buffer(&self) -> impl Iterator<Item = usize> {
        self.meta[..self.received]
            .iter()
            .map(|meta| meta.len.div_ceil(stride(meta)).max(1))
    }

    /// The next datagram, in order of arrival; call [`Self::advance`] once it is handled.
    #[must_use]
    pub fn datagram(&self) -> Option<Datagram<'_>> {
        self.datagrams().next()
    }

    /// The remaining datagrams, in order of arrival; call [`Self::advance`] for each that is handled.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        let mut cursor = self.cursor;
        std::iter::from_fn(move || {
            let meta = self.meta[..self.received].get(cursor.current)?;
            let buffer = &self.storage[cursor.current * RECEIVE_BUFFER_BYTES..][..meta.len];
            let rest = &buffer[cursor.offset..];
            cursor.advance(meta);
            Some(Datagram {
                bytes: &rest[..stride(meta).min(rest.len())],
                from: meta.addr,
                arrival: arrival(meta),
                ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            })
        })
    }

    /// Moves on to the datagram after [`Self::datagram`].
    pub fn advance(&mut self) {
        if let Some(meta) = self.meta[..self.received].get(self.cursor.current) {
            self.cursor.advance(meta);
        }
    }
}

fn arrival(meta: &RecvMeta) -> Option<Arrival> {
    let (address, interface) = (meta.dst_ip?, meta.interface_index?);
    Some(Arrival { address, interface })
}

/// The kernel gives no stride, or zero, for a buffer that holds one datagram.
fn stride(meta: &RecvMeta) -> usize {
    if meta.stride == 0 {
        meta.len.max(1)
    } else {
        meta.stride
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_received_batch_is_cut_at_its_stride_and_an_empty_datagram_is_one() {
        let mut buffers = ReceiveBuffers::default();
        let received = buffers.fill(|slices, meta| {
            slices[0][..7].copy_from_slice(&[1, 1, 1, 2, 2, 2, 3]);
            (meta[0].len, meta[0].stride) = (7, 3);
            (meta[1].len, meta[1].stride) = (0, 0);
            slices[2][..2].copy_from_slice(&[9, 9]);
            (meta[2].len, meta[2].stride) = (2, 2);
            Ok::<_, ()>(3)
        });
        assert_eq!(received, Ok(3));
        let counted: Vec<_> = buffers.segments_per_buffer().collect();
        assert_eq!(counted, [3, 1, 1]);
        let mut seen = Vec::new();
        while let Some(datagram) = buffers.datagram() {
            seen.push(datagram.bytes.to_vec());
            buffers.advance();
        }
        assert_eq!(seen, [&[1u8, 1, 1][..], &[2, 2, 2], &[3], &[], &[9, 9]]);
        assert!(buffers.is_finished());
    }

    #[test]
    fn a_buffer_without_a_stride_counts_as_one_datagram() {
        let mut buffers = ReceiveBuffers::default();
        let received = buffers.fill(|_, meta| {
            (meta[0].len, meta[0].stride) = (1000, 0);
            Ok::<_, ()>(1)
        });
        assert_eq!(received, Ok(1));
        assert_eq!(buffers.segments_per_buffer().collect::<Vec<_>>(), [1]);
    }
}
