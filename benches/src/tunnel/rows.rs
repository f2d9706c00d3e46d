//! The rows of a comparison, one line each: name, unit, test, contenders and target.

mod set;

use anyhow::Context as _;

use super::iperf::{Load, Way};
use super::{Contender, Kind, contender::CONVOY};
pub(crate) use set::Set;

/// One row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Name on the command line and in result files.
    pub(crate) name: &'static str,
    /// Title with the unit.
    pub(crate) title: &'static str,
    /// Decimals shown.
    pub(crate) decimals: usize,
    /// The test that yields the figure; rows of the same test share its run.
    pub(crate) test: Test,
    pub(crate) figure: Figure,
    pub(crate) field: Field,
    pub(crate) aim: Aim,
}

/// A test, which yields figures for one or more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// CPU time without traffic.
    CpuIdle,
    /// Round trips without load.
    PingIdle,
    Tcp(Tcp),
    /// Requests and answers of 32 bytes, one in flight, over TCP and then UDP; optionally beside one TCP stream.
    Requests {
        beside_tcp: bool,
    },
    /// A new TCP connection for each request, this many at a time.
    Connections(u32),
    /// UDP with this payload at a constant rate in kpps.
    UdpOffered(usize, u32),
    /// The highest UDP rate with this payload.
    UdpRate(usize),
    /// UDP with this payload at increasing rates.
    UdpCurve(usize),
    /// TCP up beside this many open connections that carry nothing.
    Flows(u32),
    /// The peak memory of a daemon.
    Memory,
}

/// A TCP run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) load: Load,
    /// Whether to send a probe every 10 ms beside it.
    pub(crate) ping: bool,
    pub(crate) veth: Veth,
}

/// How the veth treats batches of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Veth {
    /// Passes them on whole.
    Whole,
    /// Cuts them, as a wire does.
    Cuts,
    /// Cuts them, and loses 1 % in each direction.
    Loses,
}

/// A figure of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// The test's main figure.
    Main,
    /// CPU seconds of both daemons per gigabyte.
    Cpu,
    /// Thousands of system calls of both daemons per gigabyte, counted in a separate run.
    Syscalls,
    /// Peak memory of the larger daemon during the run, in MB.
    Memory,
    /// Percentiles of round trips; for requests, of those over TCP.
    P50,
    P99,
    P999,
    /// Percentiles of requests over UDP.
    UdpP50,
    UdpP99,
    UdpP999,
    /// Requests per second over TCP.
    Rate,
    /// How many connections are open.
    Open,
}

/// The contenders of a row; Convoy is always one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// WireGuard programs with their defaults.
    Programs,
    /// The same, also with Convoy's queue length.
    WithVariants,
    /// WireGuard programs and OpenVPN.
    WithOpenVpn,
    Everyone,
    /// Only contenders of sets besides [`Set::Programs`].
    OtherSets,
}

/// Which figures are better, and the target for Convoy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aim {
    More,
    Less,
    /// At least this ratio to the best peer.
    RatioAtLeast(f64),
    /// At most this ratio to the best peer.
    RatioAtMost(f64),
    /// At most this figure.
    AtMost(f64),
}

pub(super) const UP: Tcp = Tcp {
    load: Load {
        way: Way::Up,
        streams: 1,
        congestion: None,
    },
    ping: false,
    veth: Veth::Whole,
};
const DOWN: Tcp = UP.way(Way::Down);
const LOST: Tcp = UP.veth(Veth::Loses);
const IDLE: Test = Test::Requests { beside_tcp: false };
const LOADED: Test = Test::Requests { beside_tcp: true };

use Aim::{AtMost, Less, More, RatioAtLeast, RatioAtMost};
use Field::{Everyone, OtherSets, Programs, WithOpenVpn, WithVariants};
use Figure::{Cpu, Main, Memory, Open, P50, P99, P999, Rate, Syscalls, UdpP50, UdpP99, UdpP999};

/// All rows, in the order of the tables.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    row("tcp-up", "TCP up, Gbit/s", 2, UP.test(), Main, Everyone, RatioAtLeast(1.25)),
    row("tcp-down", "TCP down, Gbit/s", 2, DOWN.test(), Main, Everyone, RatioAtLeast(1.25)),
    row("tcp-4", "TCP up, 4 streams, Gbit/s", 2, UP.streams(4).test(), Main, WithVariants, RatioAtLeast(1.25)),
    row("tcp-both", "TCP both ways, Gbit/s", 2, UP.way(Way::Both).test(), Main, WithVariants, RatioAtLeast(1.25)),
    row("tcp-up-cpu", "TCP up, CPU s/GB", 2, UP.test(), Cpu, Everyone, RatioAtMost(0.8)),
    row("tcp-up-ping", "TCP up beside a ping, Gbit/s", 2, UP.ping().test(), Main, WithVariants, More),
    row("ping-tcp", "ping beside TCP up, p50, ms", 3, UP.ping().test(), P50, WithVariants, RatioAtMost(1.2)),
    row("ping-tcp-p99", "ping beside TCP up, p99, ms", 3, UP.ping().test(), P99, WithVariants, Less),
    row("tcp-up-bbr", "TCP up, bbr, Gbit/s", 2, UP.bbr().test(), Main, Programs, More),
    row("tcp-down-bbr", "TCP down, bbr, Gbit/s", 2, DOWN.bbr().test(), Main, Programs, More),
    row("tcp-up-bbr-ping", "TCP up, bbr, beside a ping, Gbit/s", 2, UP.bbr().ping().test(), Main, Programs, More),
    row("ping-bbr", "ping beside TCP up, bbr, p50, ms", 3, UP.bbr().ping().test(), P50, Programs, Less),
    row("ping-bbr-p99", "ping beside TCP up, bbr, p99, ms", 3, UP.bbr().ping().test(), P99, Programs, Less),
    row("tcp-cut", "TCP up, veth cuts, Gbit/s", 2, UP.veth(Veth::Cuts).test(), Main, WithVariants, RatioAtLeast(1.8)),
    row("udp-1200", "UDP 1,200 B, ≤ 1 % loss, kpps", 1, Test::UdpRate(1_200), Main, WithVariants, RatioAtLeast(2.0)),
    row("udp-64", "UDP 64 B, ≤ 1 % loss, kpps", 1, Test::UdpRate(64), Main, WithVariants, RatioAtLeast(1.1)),
    row("udp-200k", "UDP at 200 kpps, arrived, kpps", 1, Test::UdpOffered(1_200, 200), Main, WithVariants, RatioAtLeast(2.0)),
    row("ping-idle", "ping, idle, p50, ms", 3, Test::PingIdle, P50, WithVariants, RatioAtMost(1.2)),
    row("cpu-idle", "CPU when idle, %", 2, Test::CpuIdle, Main, WithVariants, AtMost(1.0)),
    row("memory", "peak memory, MB", 1, Test::Memory, Main, WithVariants, AtMost(24.0)),
    row("request-tcp-idle-p50", "TCP request, idle, p50, µs", 0, IDLE, P50, WithOpenVpn, Less),
    row("request-tcp-idle-p99", "TCP request, idle, p99, µs", 0, IDLE, P99, WithOpenVpn, Less),
    row("request-tcp-idle-p99.9", "TCP request, idle, p99.9, µs", 0, IDLE, P999, WithOpenVpn, Less),
    row("request-udp-idle-p50", "UDP request, idle, p50, µs", 0, IDLE, UdpP50, WithOpenVpn, Less),
    row("request-udp-idle-p99", "UDP request, idle, p99, µs", 0, IDLE, UdpP99, WithOpenVpn, Less),
    row("request-udp-idle-p99.9", "UDP request, idle, p99.9, µs", 0, IDLE, UdpP999, WithOpenVpn, Less),
    row("request-tcp-loaded-p50", "TCP request beside TCP, p50, µs", 0, LOADED, P50, WithOpenVpn, Less),
    row("request-tcp-loaded-p99", "TCP request beside TCP, p99, µs", 0, LOADED, P99, WithOpenVpn, Less),
    row("request-tcp-loaded-p99.9", "TCP request beside TCP, p99.9, µs", 0, LOADED, P999, WithOpenVpn, Less),
    row("request-udp-loaded-p50", "UDP request beside TCP, p50, µs", 0, LOADED, UdpP50, WithOpenVpn, Less),
    row("request-udp-loaded-p99", "UDP request beside TCP, p99, µs", 0, LOADED, UdpP99, WithOpenVpn, Less),
    row("request-udp-loaded-p99.9", "UDP request beside TCP, p99.9, µs", 0, LOADED, UdpP999, WithOpenVpn, Less),
    row("connections", "connections with a request, 1/s", 0, Test::Connections(1), Main, Programs, More),
    row("connections-16", "the same, 16 at a time, 1/s", 0, Test::Connections(16), Main, OtherSets, More),
    row("requests", "requests on one connection, 1/s", 0, IDLE, Rate, OtherSets, More),
    row("tcp-up-syscalls", "TCP up, kcalls/GB", 1, UP.test(), Syscalls, WithOpenVpn, Less),
    row("tcp-up-memory", "TCP up, peak memory, MB", 1, UP.test(), Memory, WithOpenVpn, Less),
    row("tcp-down-cpu", "TCP down, CPU s/GB", 2, DOWN.test(), Cpu, WithOpenVpn, Less),
    row("tcp-down-syscalls", "TCP down, kcalls/GB", 1, DOWN.test(), Syscalls, WithOpenVpn, Less),
    row("tcp-down-memory", "TCP down, peak memory, MB", 1, DOWN.test(), Memory, WithOpenVpn, Less),
    row("tcp-8-up", "TCP up, 8 streams, Gbit/s", 2, UP.streams(8).test(), Main, Programs, More),
    row("tcp-8-up-cpu", "TCP up, 8 streams, CPU s/GB", 2, UP.streams(8).test(), Cpu, Programs, Less),
    row("tcp-8-up-syscalls", "TCP up, 8 streams, kcalls/GB", 1, UP.streams(8).test(), Syscalls, Programs, Less),
    row("tcp-8-up-memory", "TCP up, 8 streams, peak memory, MB", 1, UP.streams(8).test(), Memory, Programs, Less),
    row("tcp-8-down", "TCP down, 8 streams, Gbit/s", 2, DOWN.streams(8).test(), Main, Programs, More),
    row("tcp-8-down-cpu", "TCP down, 8 streams, CPU s/GB", 2, DOWN.streams(8).test(), Cpu, Programs, Less),
    row("tcp-8-down-syscalls", "TCP down, 8 streams, kcalls/GB", 1, DOWN.streams(8).test(), Syscalls, Programs, Less),
    row("tcp-8-down-memory", "TCP down, 8 streams, peak memory, MB", 1, DOWN.streams(8).test(), Memory, Programs, Less),
    row("tcp-loss", "TCP up, 1 % lost, Gbit/s", 2, LOST.test(), Main, Programs, More),
    row("tcp-loss-cpu", "TCP up, 1 % lost, CPU s/GB", 2, LOST.test(), Cpu, Programs, Less),
    row("tcp-loss-syscalls", "TCP up, 1 % lost, kcalls/GB", 1, LOST.test(), Syscalls, Programs, Less),
    row("tcp-loss-memory", "TCP up, 1 % lost, peak memory, MB", 1, LOST.test(), Memory, Programs, Less),
    row("udp-64-most", "UDP 64 B, peak arrival rate, kpps", 1, Test::UdpCurve(64), Main, Programs, More),
    row("udp-512-most", "UDP 512 B, peak arrival rate, kpps", 1, Test::UdpCurve(512), Main, Programs, More),
    row("flows-1000", "TCP up beside 1,000 idle flows, Gbit/s", 2, Test::Flows(1_000), Main, OtherSets, More),
    row("flows-1000-open", "flows that came up of 1,000", 0, Test::Flows(1_000), Open, OtherSets, More),
    row("flows-1000-memory", "peak memory with 1,000 flows, MB", 1, Test::Flows(1_000), Memory, OtherSets, Less),
    row("flows-8000", "TCP up beside 8,000 idle flows, Gbit/s", 2, Test::Flows(8_000), Main, OtherSets, More),
    row("flows-8000-open", "flows that came up of 8,000", 0, Test::Flows(8_000), Open, OtherSets, More),
    row("flows-8000-memory", "peak memory with 8,000 flows, MB", 1, Test::Flows(8_000), Memory, OtherSets, Less),
    row("udp-1200-most", "UDP 1,200 B, peak arrival rate, kpps", 1, Test::UdpCurve(1_200), Main, WithOpenVpn, More),
];

/// The rows that tell two builds of Convoy apart, for `commits`.
pub(crate) const OF_COMMITS: [&str; 16] = [
    "tcp-up",
    "tcp-down",
    "tcp-4",
    "tcp-up-cpu",
    "tcp-up-ping",
    "ping-tcp",
    "ping-tcp-p99",
    "tcp-up-bbr",
    "tcp-down-bbr",
    "tcp-up-bbr-ping",
    "ping-bbr",
    "ping-bbr-p99",
    "tcp-cut",
    "udp-1200",
    "udp-64",
    "ping-idle",
];

/// The rows called `names`.
///
/// # Errors
/// If a name is unknown; lists all names.
pub(crate) fn named(names: &[impl AsRef<str>]) -> anyhow::Result<Vec<&'static Row>> {
    let named = |name: &str| {
        let known = || {
            ROWS.iter()
                .map(|row| row.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        Row::named(name).with_context(|| format!("no row is called {name}: {}", known()))
    };
    names.iter().map(|name| named(name.as_ref())).collect()
}

const fn row(
    name: &'static str,
    title: &'static str,
    decimals: usize,
    test: Test,
    figure: Figure,
    field: Field,
    aim: Aim,
) -> Row {
    Row {
        name,
        title,
        decimals,
        test,
        figure,
        field,
        aim,
    }
}

impl Row {
    /// The row with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ROWS.iter().find(|row| row.name == name)
    }

    /// Whether `contender` has a figure in this row; the bare veth has those that need no daemon.
    pub(crate) fn is_for(&self, contender: &Contender) -> bool {
        match contender.kind {
            Kind::Bare => true,
            Kind::WireGuard if contender.name == CONVOY => true,
            Kind::WireGuard if contender.is_variant() => {
                matches!(self.field, WithVariants | Everyone)
            }
            Kind::WireGuard => true,
            Kind::OpenVpn => matches!(self.field, WithOpenVpn | Everyone),
            Kind::Exec | Kind::Ports | Kind::Nat | Kind::Network => true,
            Kind::Socks => !matches!(self.test, Test::UdpRate(_)),
        }
    }
}

impl Tcp {
    const fn way(mut self, way: Way) -> Self {
        self.load.way = way;
        self
    }

    const fn streams(mut self, streams: u32) -> Self {
        self.load.streams = streams;
        self
    }

    const fn bbr(mut self) -> Self {
        self.load.congestion = Some("bbr");
        self
    }

    const fn ping(mut self) -> Self {
        self.ping = true;
        self
    }

    const fn veth(mut self, veth: Veth) -> Self {
        self.veth = veth;
        self
    }

    const fn test(self) -> Test {
        Test::Tcp(self)
    }
}

impl Aim {
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, More | RatioAtLeast(_))
    }
}

/// The tests that yield `rows`, each once, in order; memory is read last.
pub(crate) fn tests_of(rows: &[&Row]) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for row in rows {
        if !tests.contains(&row.test) {
            tests.push(row.test);
        }
    }
    tests.sort_by_key(|test| match test {
        Test::CpuIdle => 0,
        Test::PingIdle => 1,
        Test::Memory => 3,
        _ => 2,
    });
    tests
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::tunnel::contender;

    #[test]
    fn every_row_has_a_name_and_a_title_of_its_own() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        let titles: BTreeSet<_> = ROWS.iter().map(|row| row.title).collect();
        assert_eq!((names.len(), titles.len()), (ROWS.len(), ROWS.len()));
        assert!(OF_COMMITS.iter().all(|name| Row::named(name).is_some()));
        assert_eq!(Set::Rootless.rows().len(), set::OF_ROOTLESS.len());
        assert_eq!(Set::Gateways.rows().len(), set::OF_GATEWAYS.len());
    }

    #[test]
    fn a_test_runs_once_for_all_its_rows_and_memory_comes_last() {
        let rows =
            ["memory", "tcp-up", "tcp-up-cpu", "cpu-idle"].map(|name| Row::named(name).unwrap());
        assert_eq!(tests_of(&rows), [Test::CpuIdle, UP.test(), Test::Memory]);
    }

    #[test]
    fn variants_and_openvpn_take_part_only_where_their_figures_are_shown() {
        let all = contender::all(Path::new("convoy"), Path::new("bin"));
        let count = |name: &str| {
            let one = all.iter().find(|one| one.name == name).unwrap();
            ROWS.iter().filter(|row| row.is_for(one)).count()
        };
        assert_eq!(count("convoy"), ROWS.len());
        assert_eq!(count("gotatun"), ROWS.len());
        assert!(count("gotatun+q") < count("openvpn"));
    }
}
