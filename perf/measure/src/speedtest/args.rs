//! The options of a speed test.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use convoy_lab::wireguard::{Implementation, TunnelOptions};

use super::{
    report::Settings,
    test::{MTUS, Test, TooLarge},
};
use crate::{Error, error::Step as _, profile::CallGraph};

/// Measures a tunnel: TCP up, down, in four streams, beside a ping and under BBR, the highest UDP rate with
/// at most 1 % loss, latency without and under load, and the daemons' CPU time.
#[derive(Debug, Clone, Args)]
pub struct SpeedtestArgs {
    /// Counted seconds of each TCP run and of each UDP confirmation
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(super) secs: u32,

    /// Run these tests, in this order: tcp-up and tcp-down; tcp-N, N streams up, 1 to 64; each of them
    /// with -ping, a ping every 10 ms beside it while it is counted, or -bbr, under BBR; udp-SIZE, SIZE
    /// bytes of payload, 16 to the MTU less 28 [default:
    /// tcp-up,tcp-down,tcp-4,tcp-up-ping,tcp-up-bbr,udp-1200,udp-64; with --compare or --profile: tcp-up]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    tests: Vec<Test>,

    /// Print one JSON object on the standard output and nothing else
    #[arg(long)]
    pub(super) json: bool,

    /// Measure two configurations of the daemon, interleaved; `shape` is GSO and batches of 50 packets
    /// against neither
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with_all = ["serve", "to"])]
    pub(super) compare: Option<Contrast>,

    /// Rounds of a comparison
    #[arg(long, value_name = "N", default_value_t = 5, requires = "compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) rounds: u32,

    /// Profile both daemons meanwhile, as `convoy profile` does, and write the result to this
    /// directory, which must be empty, or not there yet. The tests run three times: counted, which the
    /// table is about; recorded; and under strace. With --compare: once for each configuration, and
    /// the difference
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
    /// their own, and carry nothing
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
    pub(super) loss: f64,

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
    /// Whether this process only answers another host's tests, and says so in its log.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.serve.is_some()
    }

    /// The tests that are asked for, each once, in the order in which they run.
    pub(super) fn tests(&self) -> Vec<Test> {
        if self.tests.is_empty() {
            return match self.compare.is_some() || self.profile.is_some() {
                true => vec![Test::TCP_UP],
                false => Test::USUAL.to_vec(),
            };
        }
        let mut tests = Vec::new();
        for test in &self.tests {
            if !tests.contains(test) {
                tests.push(*test);
            }
        }
        tests
    }

    /// Fails when packets of a test would be fragmented. Between hosts the MTU is not known.
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

    /// Whether the veth takes batches uncut. With loss it does not by default: a packet lost is then one
    /// packet, as on a wire, not a batch.
    pub(super) fn veth_gso(&self) -> bool {
        self.veth_gso
            .map_or(self.loss == 0.0, |asked| asked == OnOff::On)
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
        let switches = [
            ("--gso", self.gso.map(name)),
            ("--tun-offload", self.tun_offload.map(name)),
            ("--udp-gro", self.udp_gro.map(name)),
            ("--batch", self.batch.map(|batch| batch.to_string())),
        ];
        let given = switches
            .into_iter()
            .filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }

    /// The daemon that is measured, with `switches`.
    pub(super) fn implementation(&self, switches: &[String]) -> Result<Implementation, Error> {
        let program = match &self.daemon {
            Some(path) => path.clone(),
            None => std::env::current_exe().step("find this program's file")?,
        };
        let daemon = Implementation::new(program);
        Ok(switches.iter().fold(daemon, Implementation::argument))
    }

    pub(super) fn settings(&self) -> Settings {
        let is_here = self.to.is_none();
        Settings {
            secs: self.secs,
            daemon: self.switches(),
            mtu: is_here.then_some(self.mtu),
            peers: is_here.then_some(self.peers),
            veth_gso: is_here.then(|| self.veth_gso()),
            loss_percent: self.loss,
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
enum Switch {
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// As it is written on the command line.
pub(super) fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
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

    fn tests(line: &str) -> String {
        let names: Vec<_> = parse(line)
            .unwrap()
            .tests()
            .iter()
            .map(Test::to_string)
            .collect();
        names.join(",")
    }

    #[test]
    fn every_test_runs_for_five_seconds_by_default_and_one_of_a_comparison_or_a_profile() {
        let args = parse("").unwrap();
        assert_eq!((args.secs, args.tests()), (5, Test::USUAL.to_vec()));
        assert!(args.switches().is_empty() && args.veth_gso());
        for line in ["--compare gso", "--profile d"] {
            assert_eq!(tests(line), "tcp-up");
            assert_eq!(tests(&format!("{line} --tests udp-64")), "udp-64");
        }
        let named = "udp-512,tcp-16,tcp-up-ping,udp-512,tcp-down";
        assert_eq!(
            tests(&format!("--tests {named}")),
            "udp-512,tcp-16,tcp-up-ping,tcp-down"
        );
        let refusal = parse("--tests tcp-up,tcp-65").unwrap_err().to_string();
        assert!(
            refusal.contains("'tcp-65'") && refusal.contains("tcp-N of N"),
            "{refusal}"
        );
    }

    #[test]
    fn a_tunnel_has_the_mtu_and_the_peers_that_are_asked_for() {
        let tunnel = |line| {
            let options = parse(line).unwrap().tunnel();
            (options.tunnel_mtu, options.cable_mtu, options.idle_peers)
        };
        assert_eq!(tunnel(""), (1_420, 1_500, 0));
        assert_eq!(tunnel("--mtu 8920 --peers 10000"), (8_920, 9_000, 9_999));
        assert_eq!(tunnel("--mtu 1280"), (1_280, 1_500, 0));
    }

    #[test]
    fn a_test_that_would_be_fragmented_is_refused_where_the_mtu_is_known() {
        let check = |line| parse(line).unwrap().check().is_ok();
        assert!(check("--tests udp-1392") && !check("--tests udp-1393"));
        assert!(check("--tests udp-8892 --mtu 8920"));
        assert!(!check("--mtu 1000"), "udp-1200 is usual");
        assert!(check("--to 198.18.0.2 --tests udp-8892"));
    }

    #[test]
    fn switches_are_passed_through_and_loss_comes_without_gso_on_the_veth() {
        let args = parse("--gso off --tun-offload on --batch 7").unwrap();
        assert_eq!(
            args.switches(),
            ["--gso", "off", "--tun-offload", "on", "--batch", "7"]
        );
        let veth_gso = |line| parse(line).unwrap().veth_gso();
        assert!(!veth_gso("--loss 0.5") && veth_gso("--loss 0.5 --veth-gso on"));
        assert!(!veth_gso("--veth-gso off"));
    }

    #[test]
    fn a_server_takes_an_address_or_none() {
        assert_eq!(
            parse("--serve").unwrap().serve,
            Some(IpAddr::from([0_u16; 8]))
        );
        let args = parse("--serve 198.18.0.1").unwrap();
        assert_eq!(args.serve, Some(IpAddr::from([198, 18, 0, 1])));
        assert!(args.is_server());
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        assert!(parse("--to 198.18.0.2 --secs 2 --tests tcp-up --json").is_ok());
        assert!(parse("--compare shape --rounds 7").is_ok());
        let here = "--gso off,--mtu 1420,--peers 1,--loss 1,--profile d,--compare gso";
        for option in here.split(',') {
            for way in ["--to 198.18.0.2", "--serve"] {
                assert!(parse(&format!("{way} {option}")).is_err(), "{way} {option}");
            }
        }
        let wrong = "--serve --to 198.18.0.1,--profile d --compare gso --rounds 2,--call-graph dwarf,\
                     --compare nonsense,--batch 51,--loss 101,--loss nan,--mtu 575,--mtu 65456,--peers 0,\
                     --peers 10001";
        for line in wrong.split(',') {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
