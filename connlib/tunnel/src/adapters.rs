//! Fills the state machine's seams with the TUN's batches and the GSO queue.

use convoy_gso::{GsoQueue, NotAppended};
use convoy_proto::{DatagramSink, Destination, PacketSink, PaddablePacket, SinkFull};
use convoy_tun::{InboundBatch, OutboundPacket};

/// A packet that lies in the TUN reader's batch.
#[derive(Debug)]
pub struct FromTun<'a>(pub OutboundPacket<'a>);

impl PaddablePacket for FromTun<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    #[inline]
    fn padded(&mut self, len: usize) -> &[u8] {
        self.0.padded(len)
    }
}

/// The queue that is flushed at the end of the tick.
#[derive(Debug)]
pub struct ToUdp<'a>(pub &'a mut GsoQueue);

impl DatagramSink for ToUdp<'_> {
    #[inline]
    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    #[inline]
    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        let appended = self.0.append(destination, datagram);
        appended.map_err(|NotAppended| SinkFull)
    }
}

/// The batch that is handed to the TUN writer; none while all are in use.
#[derive(Debug)]
pub struct ToTun<'a>(pub Option<&'a mut InboundBatch>);

impl PacketSink for ToTun<'_> {
    #[inline]
    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.as_mut()?.slot(len)
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        if let Some(batch) = &mut self.0 {
            batch.commit(len);
        }
    }
}
