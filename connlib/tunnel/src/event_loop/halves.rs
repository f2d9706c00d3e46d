//! The state of both directions: what lies between the sockets and the TUN's threads.

use std::time::Duration;

use convoy_gso::{Flusher, ReceiveBuffers, udp::Family};
use convoy_proto::Node;
use convoy_tun::{InboundBatch, OutboundBatch, Reader, ReaderExit, TryRecv, Writer};

use super::lane::{Lane, Sending};
use crate::{adapters::ToUdp, budget::Budget, metrics::Metrics, streams::Streams};

/// Most datagrams, and most handshake messages among them, between two looks at the clock. Each handshake
/// message may cost several Diffie-Hellman operations, and packets wait meanwhile.
pub(super) const DATAGRAMS_AT_ONCE: usize = 256;
pub(super) const HANDSHAKES_AT_ONCE: usize = 1;
/// How long intake waits for a stopped socket while packets go to the other family, too. After that it goes
/// on, and packets for the stopped family are dropped once its queue is full.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long it waits for a socket that takes nothing at all, as the next packets may be for the other one.
const LONG_PATIENCE: Duration = Duration::from_secs(1);
/// Time for which a family counts as in use after a packet.
const IN_USE: Duration = Duration::from_secs(1);

/// Everything between the sockets and the TUN writer.
#[derive(Debug)]
pub(super) struct InboundHalf {
    pub(super) writer: Writer,
    pub(super) received: ReceiveBuffers,
    /// The batch for the TUN that is being filled.
    pub(super) batch: Option<InboundBatch>,
    /// Whether the writer has no batch to fill, so that received datagrams wait.
    pub(super) is_writer_full: bool,
    /// When to receive again after an error.
    pub(super) retry_at: Option<Duration>,
    /// The socket served first.
    pub(super) first_family: Family,
    /// Handshake messages that the tick may still handle.
    pub(super) handshakes_left: Budget,
    /// Time that the last tick spent receiving.
    pub(super) took: Duration,
}

impl InboundHalf {
    pub(super) fn new(writer: Writer) -> Self {
        Self {
            writer,
            received: ReceiveBuffers::default(),
            batch: None,
            is_writer_full: false,
            retry_at: None,
            first_family: Family::V4,
            handshakes_left: Budget::new(0),
            took: Duration::ZERO,
        }
    }

    pub(super) fn can_receive(&self) -> bool {
        !self.is_writer_full && self.retry_at.is_none()
    }

    /// Puts an ICMP error into the batch for the TUN or, if it is full, into a new one. Returns false if the
    /// writer is full.
    pub(super) fn put_reply(&mut self, reply: &[u8], now: Duration) -> bool {
        loop {
            let batch = match &mut self.batch {
                Some(batch) => batch,
                None => match self.writer.take(now) {
                    Some(batch) => self.batch.insert(batch),
                    None => return false,
                },
            };
            if let Some(slot) = batch.slot(reply.len()) {
                slot[..reply.len()].copy_from_slice(reply);
                batch.commit(reply.len());
                return true;
            }
            if let Some(full) = self.batch.take() {
                self.writer.enqueue(full);
            }
        }
    }
}

/// Everything between the TUN reader and the sockets.
#[derive(Debug)]
pub(super) struct OutboundHalf {
    pub(super) reader: Reader,
    pub(super) flusher: Flusher,
    /// Most packets taken from a batch in one step.
    pub(super) packets_per_intake: usize,
    /// The batch from the TUN that is not yet empty.
    pub(super) batch: Option<OutboundBatch>,
    /// Lanes of IPv4 and IPv6.
    pub(super) lanes: [Lane; 2],
    pub(super) streams: Streams,
    /// For each lane, whether intake waits while it is stopped.
    awaited: [bool; 2],
    /// Time that the last tick spent taking packets in and sending them.
    pub(super) took: Duration,
}

impl OutboundHalf {
    pub(super) fn new(
        reader: Reader,
        packets_per_intake: usize,
        segmentation: bool,
        streams: Streams,
    ) -> Self {
        Self {
            reader,
            flusher: Flusher::new(segmentation),
            packets_per_intake,
            batch: None,
            lanes: Family::BOTH.map(Lane::new),
            streams,
            awaited: [true; 2],
            took: Duration::ZERO,
        }
    }

    /// Returns whether intake now waits for a socket.
    pub(super) fn is_stopped(&self) -> bool {
        let mut lanes = self.lanes.iter().zip(self.awaited);
        lanes.any(|(lane, is_awaited)| is_awaited && lane.is_stopped())
    }

    /// Updates for which sockets intake waits: for none that has kept the other family waiting too long.
    pub(super) fn lose_patience(&mut self, node: &Node, now: Duration) {
        for n in 0..2 {
            self.awaited[n] = self.patience_ends(n, node, now).is_none_or(|at| now < at);
        }
    }

    /// The earliest time at which intake stops waiting for a socket.
    pub(super) fn next_patience_end(&self, node: &Node, now: Duration) -> Option<Duration> {
        let awaited = (0..2).filter(|n| self.awaited[*n]);
        awaited
            .filter_map(|n| self.patience_ends(n, node, now))
            .min()
    }

    fn patience_ends(&self, n: usize, node: &Node, now: Duration) -> Option<Duration> {
        let (lane, other) = (&self.lanes[n], &self.lanes[1 - n]);
        let stopped_at = lane.stopped_at?;
        if other.is_stopped() || !node.has_peers_over(n == 1) {
            return None;
        }
        match now < other.used_at + IN_USE {
            true => Some(stopped_at + PATIENCE),
            false => Some(stopped_at.max(lane.progress_at) + LONG_PATIENCE),
        }
    }

    pub(super) fn is_full(&self, family: Family) -> bool {
        self.lanes[family as usize].sending == Sending::Full
    }

    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.lanes.iter().filter_map(Lane::retry_at).min()
    }

    /// Drops everything outbound, including what the reader has read. Returns the number of packets and, if
    /// the reader has ended, why.
    pub(super) fn discard(
        &mut self,
        metrics: &mut Metrics,
        node: &mut Node,
    ) -> (usize, Option<ReaderExit>) {
        let mut packets = 0;
        let exit = loop {
            match self.next_batch(metrics, node) {
                Ok(batch) => packets += batch.remaining(),
                Err(TryRecv::Empty) => break None,
                Err(TryRecv::Closed(exit)) => break Some(exit),
            }
        };
        self.flusher.forget_ahead();
        packets += self.lanes.iter_mut().map(Lane::discard).sum::<usize>();
        (packets, exit)
    }

    /// The queues that intake appends to.
    pub(super) fn sink(&mut self) -> ToUdp<'_> {
        ToUdp::new(
            self.lanes.each_mut().map(|lane| &mut lane.queue),
            self.awaited,
        )
        .with_streams(&mut self.streams)
    }

    /// The batch that is not yet empty, or the next one.
    pub(super) fn next_batch(
        &mut self,
        metrics: &mut Metrics,
        node: &mut Node,
    ) -> Result<OutboundBatch, TryRecv> {
        if let Some(batch) = self.batch.take() {
            return Ok(batch);
        }
        let batch = self.reader.try_recv()?;
        metrics.batch(&batch, node.counters());
        Ok(batch)
    }
}
