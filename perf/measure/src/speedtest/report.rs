//! The results of a speed test: the JSON for scripts, and the source of the tables.

use std::collections::BTreeMap;

use convoy_lab::measure::{Host, Sample};
use serde::Serialize;

use super::args::SpeedtestArgs;
use super::contrast::{Contrast, Side};

/// The object that `--json` prints. A figure that does not apply is `null`.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) host: Host,
    pub(super) settings: Settings,
    #[serde(flatten)]
    pub(super) results: Results,
}

/// The figures of each test, or with `--compare` those of two configurations.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Results {
    Runs(Runs),
    Comparison { compare: Comparison },
}

/// The setup of the tunnel.
#[derive(Serialize)]
pub(super) struct Settings {
    /// Counted seconds of a TCP run, and of a UDP confirmation.
    pub(super) secs: u32,
    /// The daemons' switches, as on their command line.
    pub(super) daemon: Vec<String>,
    /// MTU of the tunnel in bytes; `None` for a tunnel between two hosts.
    pub(super) mtu: Option<u32>,
    /// Peers of each daemon, idle ones included; `None` for a tunnel between two hosts.
    pub(super) peers: Option<u32>,
    /// Whether the veth passes batches uncut; `None` for a tunnel between two hosts.
    pub(super) veth_gso: Option<bool>,
    /// Packets that the veth drops, in percent.
    pub(super) loss_percent: f64,
    /// The server's address, for a tunnel between two hosts.
    pub(super) to: Option<String>,
}

impl Settings {
    pub(super) fn of(args: &SpeedtestArgs) -> Self {
        let is_here = args.to.is_none();
        Self {
            secs: args.secs,
            daemon: args.switches(),
            mtu: is_here.then_some(args.mtu),
            peers: is_here.then_some(args.peers),
            veth_gso: is_here.then(|| args.veth_gso()),
            loss_percent: args.loss,
            to: args.to.clone(),
        }
    }
}

/// All tests of one configuration.
#[derive(Default, Serialize)]
pub(super) struct Runs {
    pub(super) ceiling: Ceiling,
    pub(super) runs: Vec<Run>,
    /// The higher of the two daemons' peaks; `None` if the speed test did not start them.
    pub(super) peak_memory_bytes: Option<u64>,
}

/// TCP without a tunnel.
#[derive(Default, Serialize)]
pub(super) struct Ceiling {
    pub(super) gbps: Option<f64>,
    /// The same with the tunnel's packet loss on the veth.
    pub(super) gbps_same_loss: Option<f64>,
}

/// The figures of one test.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Run {
    pub(super) name: String,
    /// Received payload, in 10⁹ bits per second.
    pub(super) gbps: Option<f64>,
    /// TCP: the congestion control of the sender's sockets.
    pub(super) congestion_control: Option<String>,
    /// UDP: the highest rate with at most 1 % loss, in thousands of packets per second.
    pub(super) kpps: Option<f64>,
    /// UDP: packets lost at that rate, as a share of those sent.
    pub(super) loss: Option<f64>,
    /// UDP: packets overtaken by later ones.
    pub(super) reordered: Option<u64>,
    /// UDP: whether the rate lasted for `settings.secs`.
    pub(super) confirmed: Option<bool>,
    /// UDP: whether the generator, not loss, set the limit.
    pub(super) generator_limited: Option<bool>,
    /// CPU seconds of both daemons per 10⁹ bytes of payload.
    pub(super) cpu_s_per_gb: Option<f64>,
    /// The same of each thread of the two daemons.
    pub(super) threads: Option<Threads>,
    /// Average packets per TUN read of the sending daemon.
    pub(super) packets_per_read: Option<f64>,
    /// Average datagrams per UDP send of the sending daemon.
    pub(super) segments_per_send: Option<f64>,
    /// How full the sending daemon's batches were. Entry `v` of each histogram counts how often the value `v`
    /// was seen, entry 64 also all larger values. Values after the last entry did not occur.
    pub(super) histograms: Option<BTreeMap<&'static str, Vec<u64>>>,
    /// System calls of both daemons' data paths per 10⁹ bytes of payload.
    pub(super) syscalls_per_gb: Option<f64>,
    /// Median round trip without load, in milliseconds.
    pub(super) ping_idle_ms: Option<f64>,
    /// Median round trip under this test's load, in milliseconds.
    pub(super) ping_loaded_ms: Option<f64>,
    /// 99th percentile under this test's load, in milliseconds.
    pub(super) ping_loaded_p99_ms: Option<f64>,
}

/// CPU seconds of the daemons' threads per 10⁹ bytes of payload, by name. Idle threads are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Threads {
    pub(super) sender: BTreeMap<String, f64>,
    pub(super) receiver: BTreeMap<String, f64>,
}

impl Run {
    /// Throughput in 10⁹ bits per second at which the busiest thread would take all of a processor: no number of
    /// processors makes this tunnel faster.
    pub(super) fn threads_ceiling(&self) -> Option<f64> {
        let threads = self.threads.as_ref()?;
        let all = threads.sender.values().chain(threads.receiver.values());
        all.copied().reduce(f64::max).map(|busiest| 8.0 / busiest)
    }
}

/// Two configurations of the daemon, interleaved.
#[derive(Serialize)]
pub(super) struct Comparison {
    pub(super) what: Contrast,
    pub(super) rounds: u32,
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) tests: Vec<Compared>,
}

/// One figure of one test in both configurations.
#[derive(Serialize)]
pub(super) struct Compared {
    pub(super) name: String,
    /// `gbps`, `kpps` or `cpu_s_per_gb`.
    pub(super) figure: &'static str,
    pub(super) a: Option<Sample>,
    pub(super) b: Option<Sample>,
    /// A divided by B, within each round.
    pub(super) ratio: Option<Sample>,
}
