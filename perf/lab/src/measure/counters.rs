//! What a daemon counted between two moments, as `convoy stats --json` tells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};

/// The counters of one daemon. A figure that it does not report is absent, not zero.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Entry `v` of each is how often the value `v` was seen.
    histograms: BTreeMap<String, Vec<u64>>,
    /// Calls by name.
    syscalls: BTreeMap<String, u64>,
    /// By reason.
    drops: BTreeMap<String, u64>,
    cookies_sent: u64,
    state: State,
}

/// Of what is a word for people, what is a number.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct State {
    #[serde(deserialize_with = "number")]
    udp_kernel_drops: u64,
}

fn number<'a, D: Deserializer<'a>>(text: D) -> Result<u64, D::Error> {
    String::deserialize(text)?.parse().map_err(D::Error::custom)
}

impl Counters {
    /// Reads what `convoy stats --json` prints.
    ///
    /// # Errors
    ///
    /// When it is no such JSON.
    pub fn from_json(json: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Report {
            counters: Counters,
        }
        serde_json::from_str(json).map(|report: Report| report.counters)
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let histograms = self.histograms.iter().map(|(name, counts)| {
            let before = earlier.histograms.get(name).map_or(&[][..], Vec::as_slice);
            let before = before.iter().chain(std::iter::repeat(&0));
            let counts = counts.iter().zip(before);
            let counts = counts.map(|(now, before)| now.saturating_sub(*before));
            (name.clone(), counts.collect())
        });
        let kernel_drops = |counters: &Self| counters.state.udp_kernel_drops;
        Self {
            histograms: histograms.collect(),
            syscalls: difference(&self.syscalls, &earlier.syscalls),
            drops: difference(&self.drops, &earlier.drops),
            cookies_sent: self.cookies_sent.saturating_sub(earlier.cookies_sent),
            state: State {
                udp_kernel_drops: kernel_drops(self).saturating_sub(kernel_drops(earlier)),
            },
        }
    }

    /// Packets in the average TUN read that returned any.
    #[must_use]
    pub fn packets_per_read(&self) -> Option<f64> {
        self.mean("packets_per_read")
    }

    /// Segments in the average UDP send.
    #[must_use]
    pub fn segments_per_send(&self) -> Option<f64> {
        self.mean("segments_per_send")
    }

    /// How often each value was seen, from 0 on to the last that was; none where it is not reported.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Option<&[u64]> {
        let counts = self.histograms.get(name)?;
        let len = counts.iter().rposition(|&count| count > 0);
        Some(&counts[..len.map_or(0, |last| last + 1)])
    }

    /// All system calls of the data path; none where they are not counted.
    #[must_use]
    pub fn syscalls(&self) -> Option<u64> {
        (!self.syscalls.is_empty()).then(|| self.syscalls.values().sum())
    }

    /// Received datagrams that were dropped, by reason; only reasons that there were.
    pub fn inbound_drops(&self) -> impl Iterator<Item = (&str, u64)> {
        let drops = self.drops.iter().map(|(reason, n)| (reason.as_str(), *n));
        drops.filter(|(reason, n)| reason.starts_with("inbound") && *n > 0)
    }

    /// Cookie replies sent.
    #[must_use]
    pub fn cookies_sent(&self) -> u64 {
        self.cookies_sent
    }

    /// Datagrams that the kernel dropped because a socket's receive buffer was full; it counts a
    /// train as one.
    #[must_use]
    pub fn kernel_drops(&self) -> u64 {
        self.state.udp_kernel_drops
    }

    fn mean(&self, histogram: &str) -> Option<f64> {
        let counts = self.histograms.get(histogram)?;
        let (mut times, mut sum) = (0, 0);
        for (value, &count) in counts.iter().enumerate().skip(1) {
            times += count;
            sum += value as u64 * count;
        }
        (times > 0).then(|| sum as f64 / times as f64)
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

    fn counters(reads: &[u64], sendmsg: u64) -> Counters {
        let json = serde_json::json!({
            "version": "0.1.0",
            "counters": {
                "histograms": { "packets_per_read": reads },
                "syscalls": { "sendmsg": sendmsg, "read": 1 },
                "ticks": 7,
            },
        });
        Counters::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn a_difference_of_histograms_has_the_mean_of_what_happened_between() {
        let before = counters(&[9, 100, 0, 0], 50);
        let after = counters(&[90, 101, 0, 3], 80);
        let between = after.since(&before);
        assert_eq!(between.packets_per_read(), Some(10.0 / 4.0));
        assert_eq!(between.syscalls(), Some(30));
    }

    #[test]
    fn a_histogram_that_grew_longer_still_has_a_difference() {
        let between = counters(&[0, 2, 4], 0).since(&counters(&[0, 1], 0));
        assert_eq!(between.packets_per_read(), Some(9.0 / 5.0));
    }

    #[test]
    fn a_histogram_ends_with_the_last_value_that_was_seen() {
        let between = counters(&[9, 7, 3, 5, 0], 0).since(&counters(&[4, 7, 0, 5], 0));
        assert_eq!(between.histogram("packets_per_read"), Some(&[5, 0, 3][..]));
        let nothing = between.since(&between);
        assert_eq!(nothing.histogram("packets_per_read"), Some(&[][..]));
        assert_eq!(nothing.histogram("segments_per_send"), None);
    }

    #[test]
    fn what_is_not_reported_is_absent() {
        let empty = Counters::from_json(r#"{"counters":{}}"#).unwrap();
        let between = empty.since(&Counters::default());
        assert_eq!(between.packets_per_read(), None);
        assert_eq!(between.segments_per_send(), None);
        assert_eq!(between.syscalls(), None);
        assert_eq!(counters(&[5, 0], 0).packets_per_read(), None);
    }

    #[test]
    fn drops_are_told_apart_by_direction_and_those_of_the_kernel_are_a_number() {
        let counters = |n: u64| {
            let json = serde_json::json!({"counters": {
                "drops": { "inbound_replay": n, "inbound_ecn": 4, "outbound_too_big": n },
                "cookies_sent": n * 2,
                "state": { "mtu": "1420", "udp_kernel_drops": (n * 3).to_string() },
            }});
            Counters::from_json(&json.to_string()).unwrap()
        };
        let between = counters(9).since(&counters(4));
        let drops: Vec<_> = between.inbound_drops().collect();
        assert_eq!(drops, [("inbound_replay", 5)]);
        assert_eq!((between.cookies_sent(), between.kernel_drops()), (10, 15));
    }
}
