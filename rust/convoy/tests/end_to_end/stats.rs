//! A daemon's counters.

use std::fmt;

use convoy_lab::wireguard::End;
use serde_json::Value;

/// The daemon's answer to the request of `convoy stats --json`.
pub(crate) struct Stats(Value);

/// Omits histograms and zeros.
impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = ["outbound", "inbound", "drops", "state"];
        for (name, value) in parts
            .iter()
            .flat_map(|part| self.0[part].as_object().unwrap())
        {
            if *value != 0 && value != "0" {
                write!(f, "{name} {value}, ")?;
            }
        }
        Ok(())
    }
}

impl Stats {
    pub(crate) fn of(end: &End) -> Self {
        let answer = end.daemon.request("get=convoy_stats\n\n").unwrap();
        let json = answer.lines().next().unwrap();
        let json = json.strip_prefix("convoy_stats=").unwrap();
        let report: Value = serde_json::from_str(json).unwrap();
        Self(report["counters"].clone())
    }

    pub(crate) fn handshakes(&self) -> u64 {
        self.0["handshakes"].as_u64().unwrap()
    }

    pub(crate) fn outbound_packets(&self) -> u64 {
        self.0["outbound"]["packets"].as_u64().unwrap()
    }

    pub(crate) fn inbound_packets(&self) -> u64 {
        self.0["inbound"]["packets"].as_u64().unwrap()
    }

    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        self.0["drops"][reason].as_u64().unwrap()
    }

    /// Packets that were accepted and then lost on their way out.
    pub(crate) fn lost_outbound(&self) -> u64 {
        let reasons = ["send_failed", "too_big", "no_buffers", "queue_full"];
        reasons
            .map(|r| self.dropped(&format!("outbound_{r}")))
            .iter()
            .sum()
    }

    pub(crate) fn state(&self, name: &str) -> &str {
        self.0["state"][name].as_str().unwrap()
    }

    /// A numeric state.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.state(name).parse().unwrap()
    }

    /// Sends, reads or writes that carried at least `least` packets.
    pub(crate) fn at_least(&self, least: usize, histogram: &str) -> u64 {
        let counts = self.0["histograms"][histogram].as_array().unwrap();
        counts[least..].iter().map(|n| n.as_u64().unwrap()).sum()
    }
}
