//! The state of the tunnel at one moment.

use std::time::SystemTime;

use convoy_gso::queue::MAX_SEGMENTS;
use convoy_proto::{
    config::Snapshot,
    counters::{Counters, DropReason},
};

use super::EventLoop;
use crate::clock;

impl EventLoop {
    /// Adds what the state machine does not know: port, firewall mark, recent traffic and the other counters.
    pub(super) fn complete(&mut self, snapshot: &mut Snapshot) {
        snapshot.listen_port = self.port;
        snapshot.fwmark = self.fwmark;
        snapshot.recent = self.recent.traffic(clock::now(), self.node.counters());
        if let Some(hop) = &mut self.hop {
            let (now, wall) = (clock::now(), SystemTime::now());
            snapshot.outer = Some(Box::new(hop.node().snapshot(now, wall)));
        }
        self.add_counts(&mut snapshot.counters);
        // Of two tunnels, only the outer one's datagrams are on the network.
        let outward = match &mut snapshot.outer {
            Some(outer) => &mut outer.counters,
            None => &mut snapshot.counters,
        };
        self.add_drops_of_sockets(outward);
        self.add_state(&mut snapshot.counters);
    }

    fn add_counts(&mut self, counters: &mut Counters) {
        let written = self.inbound.writer.counters();
        let flushed = self.outbound.flusher.counters();
        let failed = written.failed;
        let lost =
            failed.link_down + failed.no_memory + failed.refused + failed.deleted + failed.other;
        counters.drops.add(DropReason::InboundWriteFailed, lost);
        const _: () = assert!(MAX_SEGMENTS == 64, "the histograms' last bucket");
        counters.segments_per_send.counts = flushed.segments;
        let per_write = &written.packets_per_write;
        counters.packets_per_write.counts[..per_write.len()].copy_from_slice(per_write);
        counters.segments_per_receive = self.metrics.segments_per_receive.clone();
        counters.packets_per_read = self.metrics.packets_per_read.clone();
        counters.packets_per_batch = self.metrics.packets_per_batch.clone();
        counters.cpu_time_per_tick = self.metrics.cpu_time_per_tick.clone();
        counters.ticks = self.metrics.ticks;
        counters.syscalls = vec![
            ("tun_read", self.metrics.tun_reads),
            ("tun_poll", self.metrics.tun_waits),
            ("tun_write", written.writes),
            ("udp_send", flushed.calls),
            ("udp_receive", self.metrics.receive_calls),
        ];
        counters.events = vec![
            ("gso_refused_batches", flushed.refused_batches),
            ("udp_send_blocked", flushed.blocked),
            ("udp_send_put_off", flushed.put_off),
            ("udp_sources_lost", flushed.lost_sources),
            ("udp_receive_errors", self.metrics.receive_errors),
            (
                "udp_kernel_drops",
                self.metrics.kernel_drops + self.sockets.kernel_drops(),
            ),
            ("udp_congestion_told", counters.congestion_told),
            ("udp_congestion_untold", counters.congestion_untold),
            ("tun_refused_trains", written.refused_trains),
            ("tun_bad_checksums", written.bad_checksums),
            ("tun_sparse_outbound", self.metrics.sparse_outbound),
            ("tun_sparse_inbound", self.metrics.sparse_inbound),
        ];
    }

    fn add_drops_of_sockets(&self, counters: &mut Counters) {
        let flushed = self.outbound.flusher.counters();
        for (reason, count) in [
            (DropReason::OutboundSendFailed, flushed.failed),
            (DropReason::OutboundTooBig, flushed.too_big),
            (DropReason::OutboundNoBuffers, flushed.no_buffers),
        ] {
            counters.drops.add(reason, count);
        }
    }

    fn add_state(&mut self, counters: &mut Counters) {
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();
        let (receive_buffer, send_buffer) = self.sockets.buffer_bytes().unwrap_or_default();
        let offload = self.metrics.offload;
        let link = if self.node.is_up() { "up" } else { "down" };
        counters.state = vec![
            ("link", link.to_owned()),
            ("mtu", self.node.mtu().to_string()),
            ("clamp_mss", on(self.node.clamps_mss())),
            ("aead", self.node.aead().implementation().to_owned()),
            ("gso", on(self.outbound.flusher.segmentation())),
            (
                "gso_suspended_destinations",
                self.outbound.flusher.refusing().to_string(),
            ),
            ("udp_send_buffer", send_buffer.to_string()),
            ("udp_receive_buffer", receive_buffer.to_string()),
            ("udp_gro", on(self.metrics.udp_gro)),
            ("tun_vnet_hdr", on(offload.vnet_hdr)),
            ("tun_offload_tcp", on(offload.tcp)),
            ("tun_offload_udp", on(offload.udp)),
            ("tun_coalescing", on(self.inbound.writer.coalescing().tcp)),
        ];
    }
}
