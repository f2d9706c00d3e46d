//! The seams of the state machine: the caller's packets, and the sinks for its output.

use convoy_datagram::Destination;

/// A packet in the caller's buffer, with room for padding.
pub trait PaddablePacket {
    /// The packet.
    fn bytes(&self) -> &[u8];

    /// The packet followed by zeros up to `len` bytes: at most 15 more than the packet has.
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

/// Hands out packets one by one: the next one may overwrite the one before.
pub trait PacketSource {
    /// A packet, in the source's buffer.
    type Packet<'a>: PaddablePacket
    where
        Self: 'a;

    /// The next packet.
    fn next(&mut self) -> Option<Self::Packet<'_>>;
}

/// One packet at most.
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
    /// The number of datagrams, each of any length and to any destination, that there is room for.
    fn room(&self) -> usize;

    /// Copies `datagram` out of the stack buffer.
    ///
    /// # Errors
    /// [`SinkFull`] if there is no room; nothing was appended.
    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull>;
}

/// Takes inbound packets: the TUN writer's batch.
pub trait PacketSink {
    /// Reserves a slot of `len` bytes to decrypt into, behind those that are reserved already; returns
    /// whether there is room.
    fn reserve(&mut self, len: usize) -> bool;

    /// The reserved slots.
    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]>;

    /// One of the reserved slots.
    fn slot(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Makes the first `len` bytes of slot `n` a packet for the TUN. Slots are committed in their order.
    fn commit(&mut self, n: usize, len: usize);

    /// Gives up all reserved slots that were not committed.
    fn release(&mut self);
}

/// The sink has no room; the caller keeps the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFull;
