//! The seams of the state machine: the caller's packets, and the sinks for its output.

use convoy_datagram::Destination;

/// A packet in the caller's buffer, with room for padding.
pub trait PaddablePacket {
    /// The packet.
    fn bytes(&self) -> &[u8];

    /// The packet followed by zeros up to `len` bytes: at most 15 more than the packet has.
    fn padded(&mut self, len: usize) -> &[u8];
}

/// Takes outbound datagrams: the GSO queue.
pub trait DatagramSink {
    /// Whether there is room for a datagram of any length.
    fn has_room(&self) -> bool;

    /// Copies `datagram` out of the stack buffer.
    ///
    /// # Errors
    /// [`SinkFull`] if there is no room; nothing was appended.
    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull>;
}

/// Takes inbound packets: the TUN writer's batch.
pub trait PacketSink {
    /// At least `len` bytes to decrypt into; `None` if the batch is full.
    fn slot(&mut self, len: usize) -> Option<&mut [u8]>;

    /// Makes the first `len` bytes of the slot a packet for the TUN.
    ///
    /// A slot that is not committed is given up.
    fn commit(&mut self, len: usize);
}

/// The sink has no room; the caller keeps the packet or datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFull;
