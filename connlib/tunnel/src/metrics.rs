//! What the event loop counts, and the snapshot of it.

use std::{
    io,
    time::{Duration, SystemTime},
};

use convoy_gso::{ReceiveBuffers, UdpSockets, queue::MAX_SEGMENTS};
use convoy_proto::{
    config::Snapshot,
    counters::{Counters, DropReason, Histogram},
};
use convoy_tun::{Offload, OutboundBatch};

use crate::event_loop::EventLoop;

/// Plain integers: only the event loop's thread touches them.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) ticks: u64,
    pub(crate) receive_calls: u64,
    receive_errors: u64,
    segments_per_receive: Histogram,
    packets_per_read: Histogram,
    packets_per_batch: Histogram,
    tun_reads: u64,
    tun_waits: u64,
    offload: Offload,
    udp_gro: bool,
    /// Of sockets that are closed.
    kernel_drops: u64,
}

impl Metrics {
    pub(crate) fn new(offload: Offload, udp_gro: bool) -> Self {
        Self {
            udp_gro,
            kernel_drops: 0,
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

    /// Counts what one receive call brought.
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

    /// Keeps the counts of sockets that are about to be closed.
    pub(crate) fn closing(&mut self, sockets: &UdpSockets) {
        self.kernel_drops += sockets.kernel_drops();
    }

    /// Counts a batch from the TUN reader.
    pub(crate) fn batch(&mut self, batch: &OutboundBatch, counters: &mut Counters) {
        self.packets_per_batch.record(batch.packets());
        for packets in batch.packets_per_read() {
            self.packets_per_read.record(packets);
        }
        let calls = batch.calls();
        self.tun_reads += u64::from(calls.reads);
        self.tun_waits += u64::from(calls.waits);
        counters
            .drops
            .add(DropReason::OutboundMalformed, batch.malformed().into());
    }
}

impl EventLoop {
    /// The device, its peers, and everything counted so far.
    pub(crate) fn snapshot(&mut self, now: Duration) -> Snapshot {
        let mut snapshot = self.node.snapshot(now, SystemTime::now());
        snapshot.listen_port = self.port;
        snapshot.fwmark = self.fwmark;
        self.add_counts(&mut snapshot.counters);
        self.add_state(&mut snapshot.counters);
        snapshot
    }

    fn add_counts(&mut self, counters: &mut Counters) {
        let written = self.writer.counters();
        let flushed = self.flusher.counters();
        let failed = written.failed;
        let lost =
            failed.link_down + failed.no_memory + failed.refused + failed.deleted + failed.other;
        for (reason, count) in [
            (DropReason::OutboundSendFailed, flushed.failed),
            (DropReason::OutboundTooBig, flushed.too_big),
            (DropReason::OutboundNoBuffers, flushed.no_buffers),
            (DropReason::InboundWriteFailed, lost),
        ] {
            counters.drops.add(reason, count);
        }
        const _: () = assert!(MAX_SEGMENTS == 64, "the histograms' last bucket");
        counters.segments_per_send.counts = flushed.segments;
        let per_write = &written.packets_per_write;
        counters.packets_per_write.counts[..per_write.len()].copy_from_slice(per_write);
        counters.segments_per_receive = self.metrics.segments_per_receive.clone();
        counters.packets_per_read = self.metrics.packets_per_read.clone();
        counters.packets_per_batch = self.metrics.packets_per_batch.clone();
        counters.ticks = self.metrics.ticks;
        counters.syscalls = vec![
            ("tun_read", self.metrics.tun_reads),
            ("tun_poll", self.metrics.tun_waits),
            ("tun_write", written.writes),
            ("udp_send", flushed.calls),
            ("udp_receive", self.metrics.receive_calls),
        ];
    }

    fn add_state(&mut self, counters: &mut Counters) {
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();
        let refused_trains = self.writer.counters().refused_trains;
        let (receive_buffer, send_buffer) = self.sockets.buffer_bytes().unwrap_or_default();
        let flushed = self.flusher.counters();
        let offload = self.metrics.offload;
        let kernel_drops = self.metrics.kernel_drops + self.sockets.kernel_drops();
        let link = if self.node.is_up() { "up" } else { "down" };
        counters.state = vec![
            ("link", link.to_owned()),
            ("mtu", self.node.mtu().to_string()),
            ("gso", on(self.flusher.segmentation())),
            (
                "gso_suspended_destinations",
                self.flusher.refusing().to_string(),
            ),
            ("gso_refused_batches", flushed.refused_batches.to_string()),
            ("udp_send_blocked", flushed.blocked.to_string()),
            ("udp_send_put_off", flushed.put_off.to_string()),
            ("udp_sources_lost", flushed.lost_sources.to_string()),
            ("udp_send_buffer", send_buffer.to_string()),
            ("udp_receive_buffer", receive_buffer.to_string()),
            ("udp_gro", on(self.metrics.udp_gro)),
            (
                "udp_receive_errors",
                self.metrics.receive_errors.to_string(),
            ),
            ("udp_kernel_drops", kernel_drops.to_string()),
            ("tun_vnet_hdr", on(offload.vnet_hdr)),
            ("tun_offload_tcp", on(offload.tcp)),
            ("tun_offload_udp", on(offload.udp)),
            ("tun_coalescing", on(self.writer.coalescing().tcp)),
            ("tun_refused_trains", refused_trains.to_string()),
        ];
    }
}
