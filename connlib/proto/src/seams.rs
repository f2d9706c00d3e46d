//! The traits through which the state machine takes packets and puts out packets and datagrams.

use convoy_types::Destination;

use crate::relays::RelayId;

/// A packet in the caller's buffer, with room for padding.
pub trait PaddablePacket {
    /// The packet.
    fn bytes(&self) -> &[u8];

    /// The packet, padded with zeros to `len` bytes: at most 15 more than its length.
    fn padded(&mut self, len: usize) -> &[u8];
}

impl<P: PaddablePacket> PaddablePacket for &mut P {
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    fn padded(&mut self, len: usize) -> &[u8] {
        (**self).padded(len)
    }
}

/// Yields packets one by one; each may overwrite the one before.
pub trait PacketSource {
    /// A packet, in the source's buffer.
    type Packet<'a>: PaddablePacket
    where
        Self: 'a;

    /// The next packet.
    fn next(&mut self) -> Option<Self::Packet<'_>>;
}

/// Yields one packet at most.
impl<P: PaddablePacket> PacketSource for Option<&mut P> {
    type Packet<'a>
        = &'a mut P
    where
        Self: 'a;

    fn next(&mut self) -> Option<&mut P> {
        self.take()
    }
}

/// Takes outbound datagrams: the GSO queue.
pub trait DatagramSink {
    /// Number of datagrams that surely fit, whatever their lengths and destinations.
    fn room(&self) -> usize;

    /// Appends a copy of `datagram`, which lies in a buffer that is about to be reused.
    ///
    /// # Errors
    /// [`SinkFull`] if there is no room; nothing was appended.
    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull>;

    /// Appends a copy of `frame` to the stream of a TURN server, and zeros up to a multiple of four bytes (RFC 8656
    /// §12.5).
    ///
    /// # Errors
    /// [`SinkFull`] if there is no stream, or no room for all of it; nothing was appended.
    fn append_frame(&mut self, _relay: RelayId, _frame: &[u8]) -> Result<(), SinkFull> {
        Err(SinkFull)
    }
}

/// Takes inbound packets: the TUN writer's batch.
pub trait PacketSink {
    /// Reserves another slot of `len` bytes to decrypt into; returns whether there was room.
    fn reserve(&mut self, len: usize) -> bool;

    /// The reserved slots, in the order in which they were reserved.
    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]>;

    /// The reserved slot `n`.
    fn slot(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Makes the first `len` bytes of slot `n` a packet for the TUN. Slots are committed in ascending order.
    fn commit(&mut self, n: usize, len: usize);

    /// Ends the reservation: slots that were not committed are discarded.
    fn release(&mut self);
}

/// The sink has no room; the caller still has the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFull;
