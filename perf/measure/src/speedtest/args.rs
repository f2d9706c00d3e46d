//! The options of a speed test.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Result;
use clap::builder::{ArgPredicate, BoolishValueParser};
use clap::{ArgGroup, Args};
use convoy_lab::wireguard::{Implementation, TunnelOptions};

use super::contrast::Contrast;
use super::inside::program;
use super::test::{MTUS, Test};
use crate::profile::CallGraph;

const AUTO_ON_OFF: [&str; 3] = ["auto", "on", "off"];

/// Measures a tunnel: TCP up, down, in four streams, beside a ping and under BBR; the highest UDP rate with
/// at most 1 % loss; latency with and without load; and the daemons' CPU time.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("here").multiple(true))]
pub struct SpeedtestArgs {
    /// Measured seconds of each TCP run and each UDP confirmation
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,

    /// Run these tests in this order: tcp-up and tcp-down; tcp-N with N streams up, 1 to 64; each of these
    /// also with -ping (a ping every 10 ms beside it) or -bbr (under BBR) appended; udp-SIZE with SIZE bytes
    /// of payload, from 16 to the MTU less 28. With --compare or --profile the default is tcp-up alone
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    #[arg(default_value_ifs = [
        ("compare", ArgPredicate::IsPresent, "tcp-up"),
        ("profile", ArgPredicate::IsPresent, "tcp-up"),
    ])]
    #[arg(default_value = "tcp-up,tcp-down,tcp-4,tcp-up-ping,tcp-up-bbr,udp-1200,udp-64")]
    pub(super) tests: Vec<Test>,

    /// Print only one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,

    /// Measure two configurations of the daemon, interleaved; `shape` compares GSO and batches of 50
    /// packets with neither
    #[arg(long, value_name = "WHAT", value_enum, group = "here")]
    pub(super) compare: Option<Contrast>,

    /// Rounds of a comparison
    #[arg(long, value_name = "N", default_value_t = 5, requires = "compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: u32,

    /// Also profile both daemons, as `convoy profile` does, and write the result to this directory, which
    /// must be empty or not exist yet. The tests run three times: for the table, for the recording, and
    /// under strace. With --compare, writes a profile of each configuration and their difference
    #[arg(long, value_name = "DIR", conflicts_with = "rounds", group = "here")]
    pub(super) profile: Option<PathBuf>,

    /// How a profile finds callers: `dwarf` works without frame pointers, but is slow
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CallGraph::Fp)]
    #[arg(requires = "profile")]
    pub(super) call_graph: CallGraph,

    /// Passed to the daemons: several datagrams in one send
    #[arg(long, value_name = "WHEN", value_parser = AUTO_ON_OFF, group = "here")]
    gso: Option<String>,

    /// Passed to the daemons: super-packets on the TUN device
    #[arg(long, value_name = "WHEN", value_parser = AUTO_ON_OFF, group = "here")]
    tun_offload: Option<String>,

    /// Passed to the daemons: several datagrams in one receive
    #[arg(long, value_name = "WHEN", value_parser = AUTO_ON_OFF, group = "here")]
    udp_gro: Option<String>,

    /// Passed to the daemons: which implementation seals and opens packets
    #[arg(long, value_name = "WHICH", value_parser = ["auto", "ring"], group = "here")]
    aead: Option<String>,

    /// Passed to the daemons: most packets in one batch
    #[arg(long, value_name = "PACKETS", group = "here")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=50))]
    batch: Option<u8>,

    /// MTU of the tunnel; the veth's MTU is raised if necessary
    #[arg(long, value_name = "BYTES", default_value_t = TunnelOptions::default().tunnel_mtu)]
    #[arg(value_parser = clap::value_parser!(u32).range(MTUS), group = "here")]
    pub(super) mtu: u32,

    /// Peers of each daemon, 1 to 10,000. All but one are configured with their own keys and addresses, but
    /// stay idle
    #[arg(long, value_name = "N", default_value_t = 1, group = "here")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) peers: u32,

    /// Whether the veth passes GSO datagrams and TCP super-packets uncut, unlike a wire [default: on; off
    /// with --loss]
    #[arg(long, value_name = "on|off", value_parser = BoolishValueParser::new(), group = "here")]
    veth_gso: Option<bool>,

    /// Packet loss on the veth in percent; the baseline without a tunnel is measured with it, too
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = percent, group = "here")]
    pub(super) loss: f64,

    /// Answer the tests of `--to` from other hosts, on TCP port 5182 and on free ports for the traffic. Give
    /// this host's address inside the tunnel to serve only through the tunnel
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "::")]
    #[arg(conflicts_with_all = ["to", "json", "tests", "here"])]
    pub(super) serve: Option<IpAddr>,

    /// Measure the path to a host that runs `--serve`; give its address inside the tunnel
    #[arg(long, value_name = "ADDR", conflicts_with = "here")]
    pub(super) to: Option<String>,

    /// Measure this program instead; it must support `-f IFACE` and UAPI
    #[arg(long, value_name = "PATH", hide = true)]
    daemon: Option<PathBuf>,
}

impl SpeedtestArgs {
    /// Returns whether this process only answers another host's tests, and says so in its log.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.serve.is_some()
    }

    /// Fails if packets of a test would be fragmented. Between hosts the MTU is unknown.
    pub(super) fn check(&self) -> Result<()> {
        if self.serve.is_some() || self.to.is_some() {
            return Ok(());
        }
        self.tests.iter().try_for_each(|test| test.fits(self.mtu))
    }

    /// Steps of one run of all tests, for the progress bar: the latency without load is one.
    pub(super) fn steps(&self) -> usize {
        1 + self.tests.len()
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.secs.into())
    }

    /// Returns whether the veth passes batches uncut. With loss it cuts them by default, so that a lost packet is a
    /// single packet, as on a wire, and not a batch.
    pub(super) fn veth_gso(&self) -> bool {
        self.veth_gso.unwrap_or(self.loss == 0.0)
    }

    /// The tunnel between the namespaces.
    pub(super) fn tunnel(&self) -> TunnelOptions {
        TunnelOptions {
            idle_peers: self.peers - 1,
            ..TunnelOptions::of_mtu(self.mtu)
        }
    }

    /// The daemon's switches to pass through.
    pub(super) fn switches(&self) -> Vec<String> {
        let switches = [
            ("--gso", self.gso.clone()),
            ("--tun-offload", self.tun_offload.clone()),
            ("--udp-gro", self.udp_gro.clone()),
            ("--aead", self.aead.clone()),
            ("--batch", self.batch.map(|batch| batch.to_string())),
        ];
        let given = switches
            .into_iter()
            .filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }

    /// The daemon to measure, with `switches`.
    pub(super) fn implementation(&self, switches: &[String]) -> Result<Implementation> {
        let program = self.daemon.clone().map_or_else(program, Ok)?;
        let daemon = Implementation::new(program);
        Ok(switches.iter().fold(daemon, Implementation::argument))
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("0 to 100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SpeedtestArgs,
    }

    fn parse(line: &str) -> Result<SpeedtestArgs, clap::Error> {
        let words = std::iter::once("speedtest").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args)
    }

    #[test]
    fn a_comparison_and_a_profile_run_one_test_by_default() {
        let tests = |line| {
            let tests = parse(line).unwrap().tests;
            tests.into_iter().map(|test| test.name).collect::<Vec<_>>()
        };
        assert_eq!(tests("").len(), 7);
        for line in ["--compare gso", "--profile d", "--profile d --compare gso"] {
            assert_eq!(tests(line), ["tcp-up"]);
        }
        let named = tests("--compare gso --tests udp-64,tcp-4");
        assert_eq!(named, ["udp-64", "tcp-4"]);
        let refusal = parse("--tests tcp-up,tcp-65").unwrap_err().to_string();
        assert!(refusal.contains("'tcp-65'"), "{refusal}");
        assert!(refusal.contains("tcp-N of N"), "{refusal}");
    }

    #[test]
    fn the_mtu_bounds_tests_and_loss_comes_without_gso_on_the_veth() {
        let check = |line| parse(line).unwrap().check().is_ok();
        assert!(check("--tests udp-1392") && !check("--tests udp-1393"));
        assert!(check("--tests udp-8892 --mtu 8920"));
        assert!(!check("--mtu 1000"), "udp-1200 is usual");
        assert!(check("--to 198.18.0.2 --tests udp-8892"));
        let veth_gso = |line| parse(line).unwrap().veth_gso();
        assert!(veth_gso("") && !veth_gso("--loss 0.5"));
        assert!(veth_gso("--loss 0.5 --veth-gso on") && !veth_gso("--veth-gso off"));
        let passed_through = "--gso off --tun-offload on --aead ring --batch 7";
        let switches = parse(passed_through).unwrap().switches();
        assert_eq!(switches.join(" "), passed_through);
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        assert!(parse("--serve").unwrap().is_server());
        assert!(parse("--to 198.18.0.2 --secs 2 --tests tcp-up --json").is_ok());
        let here = "--gso off,--mtu 1420,--peers 1,--loss 1,--profile d,--compare gso";
        for option in here.split(',') {
            for way in ["--to 198.18.0.2", "--serve"] {
                assert!(parse(&format!("{way} {option}")).is_err(), "{way} {option}");
            }
        }
        let wrong = "--serve --to 198.18.0.1,--serve --tests tcp-up,--profile d --compare gso --rounds 2,\
                     --call-graph dwarf,--loss 101,--loss nan";
        for line in wrong.split(',') {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
