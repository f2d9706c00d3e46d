//! How cost grows: what `make growth` writes, and the report reads.

mod axis;
mod table;

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::{origin::Origin, speedtest::Speedtest};

pub use axis::{Axis, Quantity};
pub use table::LEGEND;

/// The result file.
pub const FILE: &str = "growth.json";

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// Where it was measured.
    pub origin: Origin,
    /// Every point is measured once a round.
    pub rounds: u32,
    /// Counted seconds of a test.
    pub secs: u32,
    /// A series for each point.
    pub series: Vec<Series>,
}

/// Between two namespaces, on a veth that carries its datagrams whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// In bytes.
    pub mtu: u32,
    /// Of each daemon; all but one idle.
    pub peers: u32,
}

/// WireGuard's usual MTU over Ethernet, and two daemons that know only each other.
pub const USUAL: Tunnel = Tunnel {
    mtu: 1_420,
    peers: 1,
};

/// One test in one tunnel, in all rounds. A round has no value where a figure does not apply, and no rate
/// where more than 1 % was lost at any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Where.
    #[serde(flatten)]
    pub tunnel: Tunnel,
    /// As the speed test names it.
    pub test: String,
    /// Payload that arrived.
    pub gbps: Option<Sample>,
    /// UDP: the highest rate with at most 1 % loss.
    pub kpps: Option<Sample>,
    /// CPU seconds of both daemons for a gigabyte of payload.
    pub cpu_s_per_gb: Option<Sample>,
    /// The most memory that one of the two daemons had, after all tests in this tunnel.
    pub peak_memory_bytes: Option<Sample>,
    /// UDP: rounds in which the generator, not loss, set the limit.
    pub generator_limited: u32,
}

impl Series {
    /// The series of `test` in `tunnel`, of which each of `rounds` holds a run.
    ///
    /// # Errors
    /// When a round did not run the test.
    pub fn of(tunnel: Tunnel, test: &str, rounds: &[Speedtest]) -> anyhow::Result<Self> {
        let runs = rounds.iter().map(|round| round.of(test));
        let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
        let limited = runs
            .iter()
            .filter(|run| run.generator_limited == Some(true));
        let memory = rounds.iter().filter_map(|round| round.peak_memory_bytes);
        Ok(Self {
            tunnel,
            test: test.to_owned(),
            gbps: Sample::of(runs.iter().filter_map(|run| run.gbps).collect()),
            kpps: Sample::of(runs.iter().filter_map(|run| run.kpps).collect()),
            cpu_s_per_gb: Sample::of(runs.iter().filter_map(|run| run.cpu_s_per_gb).collect()),
            peak_memory_bytes: Sample::of(memory.map(|bytes| bytes as f64).collect()),
            generator_limited: limited.count() as u32,
        })
    }

    /// UDP: bytes of payload.
    #[must_use]
    pub fn payload(&self) -> Option<u32> {
        self.test.strip_prefix("udp-")?.parse().ok()
    }

    /// TCP: streams.
    #[must_use]
    pub fn streams(&self) -> Option<u32> {
        self.test.strip_prefix("tcp-")?.parse().ok()
    }

    /// UDP: CPU time of both daemons for a packet, in nanoseconds.
    #[must_use]
    pub fn cpu_ns_per_packet(&self) -> Option<Sample> {
        // Seconds for 10⁹ bytes are nanoseconds for one.
        let payload = f64::from(self.payload()?);
        scaled(self.cpu_s_per_gb.as_ref(), payload)
    }

    /// The most memory in MiB.
    #[must_use]
    pub fn peak_memory_mib(&self) -> Option<Sample> {
        scaled(self.peak_memory_bytes.as_ref(), 1.0 / 1_048_576.0)
    }
}

fn scaled(sample: Option<&Sample>, factor: f64) -> Option<Sample> {
    Sample::of(sample?.values.iter().map(|value| value * factor).collect())
}

#[cfg(test)]
mod tests;
