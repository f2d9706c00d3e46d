//! The event loop's own counters.

use std::{io, time::Duration};

use convoy_gso::{ReceiveBuffers, UdpSockets};
use convoy_proto::counters::{Counters, DropReason, Histogram};
use convoy_tun::{Offload, OutboundBatch};

use crate::clock;

/// Counters as plain integers, as only the event loop's thread accesses them.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) ticks: u64,
    pub(crate) receive_calls: u64,
    pub(crate) receive_errors: u64,
    pub(crate) segments_per_receive: Histogram,
    pub(crate) packets_per_read: Histogram,
    pub(crate) packets_per_batch: Histogram,
    pub(crate) tun_reads: u64,
    pub(crate) tun_waits: u64,
    pub(crate) offload: Offload,
    pub(crate) udp_gro: bool,
    /// Packets that the event loop has read from the TUN itself, as traffic was sparse.
    pub(crate) sparse_outbound: u64,
    /// Packets that it has written to the TUN itself, as far as the TUN had room.
    pub(crate) sparse_inbound: u64,
    /// Datagrams that the kernel dropped on sockets closed since.
    pub(crate) kernel_drops: u64,
    pub(crate) cpu_time_per_tick: Histogram,
    /// CPU time of the thread at the end of the last tick.
    cpu_time: Duration,
}

impl Metrics {
    pub(crate) fn new(offload: Offload, udp_gro: bool) -> Self {
        Self {
            udp_gro,
            sparse_outbound: 0,
            sparse_inbound: 0,
            kernel_drops: 0,
            cpu_time_per_tick: Histogram::default(),
            cpu_time: clock::cpu_time(),
            ticks: 0,
            receive_calls: 0,
            receive_errors: 0,
            segments_per_receive: Histogram::default(),
            packets_per_read: Histogram::default(),
            packets_per_batch: Histogram::default(),
            tun_reads: 0,
            tun_waits: 0,
            offload,
        }
    }

    /// Counts the CPU time of a tick, and of the wait before it.
    pub(crate) fn tick_ended(&mut self) {
        let cpu_time = clock::cpu_time();
        let took = cpu_time.saturating_sub(self.cpu_time);
        self.cpu_time = cpu_time;
        self.cpu_time_per_tick
            .record((took.as_micros() / 100) as usize);
    }

    /// Counts the datagrams in each buffer of one receive call.
    pub(crate) fn received(&mut self, buffers: &ReceiveBuffers) {
        for segments in buffers.segments_per_buffer() {
            self.segments_per_receive.record(segments);
        }
    }

    /// Counts a failed receive call; the first is logged.
    pub(crate) fn receive_failed(&mut self, error: &io::Error) {
        if self.receive_errors == 0 {
            tracing::warn!(%error, "Receiving failed; further failures are only counted");
        }
        self.receive_errors += 1;
    }

    /// Keeps the drop count of sockets that are about to be closed.
    pub(crate) fn closing(&mut self, sockets: &UdpSockets) {
        self.kernel_drops += sockets.kernel_drops();
    }

    /// Counts a batch from the TUN reader.
    pub(crate) fn batch(&mut self, batch: &OutboundBatch, counters: &mut Counters) {
        self.packets_per_batch.record(batch.packets());
        for packets in batch.packets_per_read() {
            self.packets_per_read.record(packets);
        }
        if batch.is_sparse() {
            self.sparse_outbound += batch.packets() as u64;
        }
        let calls = batch.calls();
        self.tun_reads += u64::from(calls.reads);
        self.tun_waits += u64::from(calls.waits);
        counters
            .drops
            .add(DropReason::OutboundMalformed, batch.malformed().into());
    }
}
