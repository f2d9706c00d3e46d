//! Implements the state machine's traits for the TUN's batches and the GSO queues.

use convoy_gso::{GsoQueue, NotAppended, udp::Family};
use convoy_proto::{
    DatagramSink, Destination, PacketSink, PacketSource, PaddablePacket, RelayId, SinkFull,
};
use convoy_tun::{InboundBatch, OutboundBatch, OutboundPacket};

use crate::streams::Streams;

/// A packet in a batch from the TUN reader.
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

/// The next packets of a batch from the TUN reader, at most as many as the number.
#[derive(Debug)]
pub struct BatchFromTun<'a>(pub &'a mut OutboundBatch, pub usize);

impl PacketSource for BatchFromTun<'_> {
    type Packet<'p>
        = FromTun<'p>
    where
        Self: 'p;

    #[inline]
    fn next(&mut self) -> Option<FromTun<'_>> {
        self.1 = self.1.checked_sub(1)?;
        self.0.next().map(FromTun)
    }
}

/// The queues of both address families, flushed at the end of the tick.
#[derive(Debug)]
pub struct ToUdp<'a> {
    /// Queues of IPv4 and IPv6.
    queues: [&'a mut GsoQueue; 2],
    awaited: [bool; 2],
    streams: Option<&'a mut Streams>,
}

impl<'a> ToUdp<'a> {
    /// `awaited`: for each family, whether [`DatagramSink::room`] takes its queue into account. A full queue
    /// of a family that is not awaited refuses datagrams.
    #[must_use]
    pub fn new(queues: [&'a mut GsoQueue; 2], awaited: [bool; 2]) -> Self {
        Self {
            queues,
            awaited,
            streams: None,
        }
    }

    pub(crate) fn with_streams(self, streams: &'a mut Streams) -> Self {
        Self {
            streams: Some(streams),
            ..self
        }
    }

    /// Returns whether there is room for a packet.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }
}

impl DatagramSink for ToUdp<'_> {
    #[inline]
    fn room(&self) -> usize {
        let [v4, v6] = [0, 1].map(|n| match self.awaited[n] {
            true => self.queues[n].room(),
            false => usize::MAX,
        });
        v4.min(v6)
    }

    #[inline]
    fn append(&mut self, destination: &Destination, datagram: &[u8]) -> Result<(), SinkFull> {
        let queue = &mut self.queues[Family::of(destination.to.ip()) as usize];
        let appended = queue.append(destination, datagram);
        appended.map_err(|NotAppended| SinkFull)
    }

    #[cold]
    fn append_frame(&mut self, relay: RelayId, frame: &[u8]) -> Result<(), SinkFull> {
        let streams = self.streams.as_mut().ok_or(SinkFull)?;
        streams.append(relay, frame)
    }
}

/// The batch for the TUN writer; `None` while all are in use.
#[derive(Debug)]
pub struct ToTun<'a>(pub Option<&'a mut InboundBatch>);

impl PacketSink for ToTun<'_> {
    #[inline]
    fn reserve(&mut self, len: usize) -> bool {
        self.0.as_mut().is_some_and(|batch| batch.reserve(len))
    }

    #[inline]
    fn slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.0.iter_mut().flat_map(|batch| batch.slots())
    }

    #[inline]
    fn slot(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.as_mut()?.reserved(n)
    }

    #[inline]
    fn commit(&mut self, n: usize, len: usize) {
        if let Some(batch) = &mut self.0 {
            batch.commit_reserved(n, len);
        }
    }

    #[inline]
    fn release(&mut self) {
        if let Some(batch) = &mut self.0 {
            batch.release();
        }
    }
}
