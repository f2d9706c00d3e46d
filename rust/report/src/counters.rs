//! Sums over all peers, and the difference between two readings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Sums over all peers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counters {
    /// Packets that went from the TUN to the UDP socket.
    pub outbound: Traffic,
    /// Packets that went from the UDP socket to the TUN.
    pub inbound: Traffic,
    /// Histograms by name; entry `v` of each counts how often the value `v` was seen.
    pub histograms: BTreeMap<String, Vec<u64>>,
    /// Drops by reason; every reason is present.
    pub drops: BTreeMap<String, u64>,
    /// System calls by name.
    pub syscalls: BTreeMap<String, u64>,
    /// Turns of the event loop.
    pub ticks: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Cookie replies sent.
    pub cookies_sent: u64,
    /// Refusals, retries and other events by name.
    pub events: BTreeMap<String, u64>,
    /// Present offloads, buffer sizes and other states by name, as text.
    pub state: BTreeMap<String, String>,
}

/// Sums over the peers of a tunnel through which another goes; its packets are the datagrams of the tunnel inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OuterCounters {
    /// Packets that went from the tunnel inside to the UDP socket.
    pub outbound: Traffic,
    /// Packets that went from the UDP socket to the tunnel inside.
    pub inbound: Traffic,
    /// Drops by reason, those of the UDP sockets included; every reason is present.
    pub drops: BTreeMap<String, u64>,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Cookie replies sent.
    pub cookies_sent: u64,
}

/// Packets in the clear, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Traffic {
    /// Number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Counters {
    /// The difference from an `earlier` reading. The state is that of `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let histograms = self.histograms.iter().map(|(name, counts)| {
            let before = earlier.histograms.get(name).map_or(&[][..], Vec::as_slice);
            let before = before.iter().chain(std::iter::repeat(&0));
            let counts = counts.iter().zip(before);
            let counts = counts.map(|(now, before)| now.saturating_sub(*before));
            (name.clone(), counts.collect())
        });
        Self {
            outbound: self.outbound.since(earlier.outbound),
            inbound: self.inbound.since(earlier.inbound),
            histograms: histograms.collect(),
            drops: difference(&self.drops, &earlier.drops),
            syscalls: difference(&self.syscalls, &earlier.syscalls),
            ticks: self.ticks.saturating_sub(earlier.ticks),
            handshakes: self.handshakes.saturating_sub(earlier.handshakes),
            cookies_sent: self.cookies_sent.saturating_sub(earlier.cookies_sent),
            events: difference(&self.events, &earlier.events),
            state: self.state.clone(),
        }
    }

    /// Bytes of all packets in the clear, in both directions.
    #[must_use]
    pub fn bytes_carried(&self) -> u64 {
        self.outbound.bytes + self.inbound.bytes
    }

    /// Returns how often each value was seen, from 0 to the highest that was; `None` if not reported.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Option<&[u64]> {
        let counts = self.histograms.get(name)?;
        let len = counts.iter().rposition(|&count| count > 0);
        Some(&counts[..len.map_or(0, |last| last + 1)])
    }

    /// The mean of a histogram's values above zero; `None` if there are none.
    #[must_use]
    pub fn mean(&self, histogram: &str) -> Option<f64> {
        let counts = self.histograms.get(histogram)?;
        let counted = (0_u64..).zip(counts).skip(1);
        let (times, sum) = counted.fold((0, 0), |(times, sum), (value, count)| {
            (times + count, sum + value * count)
        });
        (times > 0).then(|| sum as f64 / times as f64)
    }

    /// Average packets per TUN read that returned any.
    #[must_use]
    pub fn packets_per_read(&self) -> Option<f64> {
        self.mean("packets_per_read")
    }

    /// Average segments per UDP send.
    #[must_use]
    pub fn segments_per_send(&self) -> Option<f64> {
        self.mean("segments_per_send")
    }

    /// All system calls of the data path; `None` if they are not counted.
    #[must_use]
    pub fn total_syscalls(&self) -> Option<u64> {
        (!self.syscalls.is_empty()).then(|| self.syscalls.values().sum())
    }

    /// Received datagrams that were dropped, by reason; reasons without drops are omitted.
    pub fn inbound_drops(&self) -> impl Iterator<Item = (&str, u64)> {
        let drops = self.drops.iter().map(|(reason, n)| (reason.as_str(), *n));
        drops.filter(|(reason, n)| reason.starts_with("inbound") && *n > 0)
    }

    /// Inbound packets whose datagrams were marked for congestion (ECN CE).
    #[must_use]
    pub fn congested_packets(&self) -> u64 {
        let events = ["udp_congestion_told", "udp_congestion_untold"];
        let counts = events.iter().filter_map(|event| self.events.get(*event));
        counts.sum()
    }

    /// Datagrams that the kernel dropped because a socket's receive buffer was full; it counts a
    /// GRO batch as one.
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        self.events.get("udp_kernel_drops").copied().unwrap_or(0)
    }
}

impl Traffic {
    fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

fn difference(
    now: &BTreeMap<String, u64>,
    earlier: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let differences = now.iter().map(|(name, now)| {
        let earlier = earlier.get(name).copied().unwrap_or(0);
        (name.clone(), now.saturating_sub(earlier))
    });
    differences.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(json: serde_json::Value) -> Counters {
        serde_json::from_value(json).unwrap()
    }

    fn reads(counts: &[u64], sendmsg: u64) -> Counters {
        counters(serde_json::json!({
            "histograms": { "packets_per_read": counts },
            "syscalls": { "sendmsg": sendmsg, "read": 1 },
            "ticks": 7,
        }))
    }

    #[test]
    fn a_difference_has_the_means_of_what_happened_in_between() {
        let between = reads(&[90, 101, 0, 3], 80).since(&reads(&[9, 100, 0, 0], 50));
        assert_eq!(between.packets_per_read(), Some(10.0 / 4.0));
        assert_eq!((between.total_syscalls(), between.ticks), (Some(30), 0));
        let grown = reads(&[0, 2, 4], 0).since(&reads(&[0, 1], 0));
        assert_eq!(grown.packets_per_read(), Some(9.0 / 5.0));
    }

    #[test]
    fn a_histogram_ends_with_the_last_value_that_was_seen() {
        let between = reads(&[9, 7, 3, 5, 0], 0).since(&reads(&[4, 7, 0, 5], 0));
        assert_eq!(between.histogram("packets_per_read"), Some(&[5, 0, 3][..]));
        let nothing = between.since(&between);
        assert_eq!(nothing.histogram("packets_per_read"), Some(&[][..]));
        assert_eq!(nothing.histogram("segments_per_send"), None);
    }

    #[test]
    fn a_figure_that_is_not_reported_is_absent() {
        let between = counters(serde_json::json!({})).since(&Counters::default());
        assert_eq!(between.packets_per_read(), None);
        assert_eq!(between.segments_per_send(), None);
        assert_eq!(between.total_syscalls(), None);
        assert_eq!(reads(&[5, 0], 0).packets_per_read(), None);
    }

    #[test]
    fn inbound_drops_exclude_outbound_ones_and_kernel_drops_are_a_number() {
        let counters = |n: u64| {
            counters(serde_json::json!({
                "drops": { "inbound_replay": n, "inbound_no_key": 4, "outbound_too_big": n },
                "cookies_sent": n * 2,
                "events": { "udp_kernel_drops": n * 3 },
            }))
        };
        let between = counters(9).since(&counters(4));
        let drops: Vec<_> = between.inbound_drops().collect();
        assert_eq!(drops, [("inbound_replay", 5)]);
        assert_eq!((between.cookies_sent, between.kernel_drops()), (10, 15));
    }

    #[test]
    fn a_difference_has_the_events_in_between_and_the_present_state() {
        let counters = |refused: u64, suspended: &str| {
            counters(serde_json::json!({
                "events": { "gso_refused_batches": refused },
                "state": { "gso_suspended_destinations": suspended },
            }))
        };
        let between = counters(9, "2").since(&counters(7, "3"));
        assert_eq!(between.events["gso_refused_batches"], 2);
        assert_eq!(between.state["gso_suspended_destinations"], "2");
    }
}
