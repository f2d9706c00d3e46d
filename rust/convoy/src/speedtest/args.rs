//! What can be asked of a speed test.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use convoy_lab::wireguard::TunnelOptions;

use crate::profile::CallGraph;

use super::bed::Conditions;
use super::report::Settings;
use super::test::{MTUS, TooLarge};

pub(super) use super::test::{Load, Test};

/// Measures a tunnel: TCP up, down and in four streams, the highest UDP rate with at most 1 % loss,
/// latency without and under load, and the daemons' CPU time.
#[derive(Debug, Clone, Args)]
pub(crate) struct SpeedtestArgs {
    /// Counted seconds of each TCP run and of each UDP confirmation
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,

    /// Run these tests, in this order: tcp-up and tcp-down; tcp-N, N streams up, 1 to 64; udp-SIZE, SIZE
    /// bytes of payload, 16 to the MTU less 28 [default: tcp-up,tcp-down,tcp-4,udp-1200,udp-64; with
    /// --compare or --profile: tcp-up]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    tests: Vec<Test>,

    /// Print one JSON object on the standard output and nothing else
    #[arg(long)]
    pub(super) json: bool,

    /// Measure two configurations of the daemon in turns; `shape` is GSO and batches of 50 packets
    /// against neither
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with_all = ["serve", "to"])]
    pub(super) compare: Option<Contrast>,

    /// Rounds of a comparison
    #[arg(long, value_name = "N", default_value_t = 5, requires = "compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: u32,

    /// Look into both daemons meanwhile, as `convoy profile` does, and write what is seen to this
    /// directory, which must be empty, or not there yet. The tests run three times: counted, which the
    /// table is about; recorded; and under strace. With --compare: once for each configuration, and
    /// what makes the difference
    #[arg(long, value_name = "DIR", conflicts_with_all = ["serve", "to", "rounds"])]
    pub(super) profile: Option<PathBuf>,

    /// How a profile finds callers: `dwarf` works without frame pointers, but is slow
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CallGraph::Fp)]
    #[arg(requires = "profile")]
    pub(super) call_graph: CallGraph,

    /// Passed to the daemons: several datagrams in one send
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with_all = ["serve", "to"])]
    gso: Option<Switch>,

    /// Passed to the daemons: super-packets on the TUN device
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with_all = ["serve", "to"])]
    tun_offload: Option<Switch>,

    /// Passed to the daemons: several datagrams in one receive
    #[arg(long, value_name = "WHEN", value_enum, conflicts_with_all = ["serve", "to"])]
    udp_gro: Option<Switch>,

    /// Passed to the daemons: the most packets in one batch
    #[arg(long, value_name = "PACKETS", conflicts_with_all = ["serve", "to"])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=50))]
    batch: Option<u8>,

    /// MTU of the tunnel; the veth's is raised where that does not fit
    #[arg(long, value_name = "BYTES", default_value_t = TunnelOptions::default().tunnel_mtu)]
    #[arg(conflicts_with_all = ["serve", "to"])]
    #[arg(value_parser = clap::value_parser!(u32).range(MTUS))]
    mtu: u32,

    /// Peers of each daemon, 1 to 10,000. All but one are only configured, with keys and addresses of
    /// their own: nobody speaks to them
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["serve", "to"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) peers: u32,

    /// Whether the veth takes GSO datagrams and TCP super-packets uncut, which no wire does [default:
    /// on; off with --loss]
    #[arg(long, value_name = "on|off", value_enum, conflicts_with_all = ["serve", "to"])]
    veth_gso: Option<OnOff>,

    /// Packets that the veth drops, in percent; TCP without a tunnel is then measured under it, too
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = percent)]
    #[arg(conflicts_with_all = ["serve", "to"])]
    loss: f64,

    /// Answer the tests of `--to` from other hosts: on TCP port 5182, and on free ports for the
    /// traffic. With this host's address inside the tunnel, only through the tunnel
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "::")]
    #[arg(conflicts_with_all = ["to", "json", "tests"])]
    pub(super) serve: Option<IpAddr>,

    /// Measure the way to a host that runs `--serve`; give its address inside the tunnel
    #[arg(long, value_name = "ADDR")]
    pub(super) to: Option<String>,

    /// Measure this program instead, which takes `-f IFACE` and UAPI
    #[arg(long, value_name = "PATH", hide = true)]
    daemon: Option<PathBuf>,
}

impl SpeedtestArgs {
    /// The tests that are asked for, in the order in which they run.
    pub(super) fn tests(&self) -> Vec<Test> {
        let is_one_enough = self.compare.is_some() || self.profile.is_some();
        if self.tests.is_empty() {
            let usual = if is_one_enough { 1 } else { Test::USUAL.len() };
            return Test::USUAL[..usual].to_vec();
        }
        let mut tests = Vec::new();
        for test in &self.tests {
            if !tests.contains(test) {
                tests.push(*test);
            }
        }
        tests
    }

    /// Whether what is asked for goes together, as far as the command line's grammar cannot tell.
    ///
    /// # Errors
    /// When packets of a test would be fragmented. Between hosts that is not known: the MTU is theirs.
    pub(super) fn check(&self) -> Result<(), TooLarge> {
        if self.serve.is_some() || self.to.is_some() {
            return Ok(());
        }
        self.tests()
            .into_iter()
            .try_for_each(|test| test.fits(self.mtu))
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.secs.into())
    }

    /// How the veth is to behave. Loss by default comes without GSO on the veth: a packet lost is
    /// then one packet, as on a wire, not a batch.
    pub(super) fn conditions(&self) -> Conditions {
        let veth_gso = match self.veth_gso {
            Some(asked) => asked == OnOff::On,
            None => self.loss == 0.0,
        };
        Conditions {
            veth_gso,
            loss_percent: self.loss,
        }
    }

    /// The tunnel between the namespaces.
    pub(super) fn tunnel(&self) -> TunnelOptions {
        TunnelOptions {
            idle_peers: self.peers - 1,
            ..TunnelOptions::of_mtu(self.mtu)
        }
    }

    /// The daemon's switches that are passed through.
    pub(super) fn switches(&self) -> Vec<String> {
        let batch = self.batch.map(|batch| batch.to_string());
        let switches = [
            ("--gso", self.gso.map(|switch| switch.to_string())),
            (
                "--tun-offload",
                self.tun_offload.map(|switch| switch.to_string()),
            ),
            ("--udp-gro", self.udp_gro.map(|switch| switch.to_string())),
            ("--batch", batch),
        ];
        let given = switches
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        given
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }

    /// The program that is measured.
    pub(super) fn program(&self) -> anyhow::Result<PathBuf> {
        match &self.daemon {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe().context("find this program's file"),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let Conditions {
            veth_gso,
            loss_percent,
        } = self.conditions();
        let is_here = self.to.is_none();
        Settings {
            secs: self.secs,
            daemon: self.switches(),
            mtu: is_here.then_some(self.mtu),
            peers: is_here.then_some(self.peers),
            veth_gso: is_here.then_some(veth_gso),
            loss_percent,
            to: self.to.clone(),
        }
    }
}

/// Two configurations of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Contrast {
    Gso,
    TunOffload,
    Batch,
    Shape,
}

/// A switch of the daemon, as it takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    Auto,
    On,
    Off,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("0 to 100".to_owned()),
    }
}

#[cfg(test)]
mod tests;
