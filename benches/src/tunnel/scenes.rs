//! The scenes in which tunnels are compared, one line each: name, figure, test, contenders and sets.

use anyhow::{Context as _, Result};
use convoy_lab::measure::Direction;
use convoy_lab::traffic::Exchange;
use itertools::Itertools as _;

use super::contender::{Contender, Kind, Set};

/// One scene.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    /// Name on the command line and in result files.
    pub(crate) name: &'static str,
    /// Figure and unit.
    pub(crate) figure: (&'static str, &'static str),
    /// The test that yields the figure; scenes of the same test share its run.
    pub(crate) test: Test,
    /// Letters of the sets that have it, and of its further contenders.
    sets: &'static str,
}

/// A figure of a test: its unit, or a percentile.
pub(super) type Figure = &'static str;

/// A test, which yields figures for one or more scenes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// CPU time without traffic.
    CpuIdle,
    /// Round trips without load.
    PingIdle,
    Tcp(Load),
    /// Requests and answers of 32 bytes.
    Requests(Exchange),
    /// The same beside one TCP stream.
    RequestsBesideTcp(Exchange),
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

/// The load of a TCP run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// `None` for both at once.
    pub(crate) way: Option<Direction>,
    pub(crate) streams: u32,
    /// Whether the sockets use BBR instead of the namespace's default.
    pub(crate) bbr: bool,
    /// Whether to send a probe every 10 ms beside it.
    pub(crate) ping: bool,
    pub(crate) veth: Veth,
}

/// The veth's treatment of batches of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Veth {
    /// Passes them on whole.
    Whole,
    /// Cuts them, as a wire does.
    Cuts,
    /// Cuts them, and loses 1 % in each direction.
    Loses,
    /// Delays them by 10 ms in each direction, and loses these thousandths.
    Far(u32),
}

pub(super) const UP: Load = Load {
    way: Some(Direction::Up),
    streams: 1,
    bbr: false,
    ping: false,
    veth: Veth::Whole,
};
const DOWN: Load = Load {
    way: Some(Direction::Down),
    ..UP
};

use Exchange::TcpConnect;
use Test::{
    CpuIdle, Flows, PingIdle, Requests, RequestsBesideTcp, Tcp, UdpCurve, UdpOffered, UdpRate,
};

/// All scenes, in the order of the tables. Sets: `p`rograms, `r`ootless, `g`ateways, pat`h`s, `f`orwarders; `c`ommits: those
/// that tell two builds of Convoy apart. Of the programs, also those with Convoy's `q`ueue length, and
/// `o`penvpn.
#[rustfmt::skip]
pub(crate) const SCENES: &[Scene] = &[
    of("tcp-up", ("TCP up", "Gbit/s"), Tcp(UP), "prghcqo"),
    of("tcp-down", ("TCP down", "Gbit/s"), Tcp(DOWN), "prghcqo"),
    of("tcp-4", ("TCP up, 4 streams", "Gbit/s"), Tcp(Load { streams: 4, ..UP }), "pcq"),
    of("tcp-both", ("TCP both ways", "Gbit/s"), Tcp(Load { way: None, ..UP }), "pq"),
    of("tcp-up-cpu", ("TCP up", "CPU s/GB"), Tcp(UP), "prghcqo"),
    of("tcp-up-ping", ("TCP up beside a ping", "Gbit/s"), Tcp(Load { ping: true, ..UP }), "pcq"),
    of("ping-tcp", ("ping beside TCP up, p50", "ms"), Tcp(Load { ping: true, ..UP }), "pcq"),
    of("ping-tcp-p99", ("ping beside TCP up, p99", "ms"), Tcp(Load { ping: true, ..UP }), "pcq"),
    of("tcp-up-bbr", ("TCP up, bbr", "Gbit/s"), Tcp(Load { bbr: true, ..UP }), "pc"),
    of("tcp-down-bbr", ("TCP down, bbr", "Gbit/s"), Tcp(Load { bbr: true, ..DOWN }), "pc"),
    of("tcp-up-bbr-ping", ("TCP up, bbr, beside a ping", "Gbit/s"), Tcp(Load { bbr: true, ping: true, ..UP }), "pc"),
    of("ping-bbr", ("ping beside TCP up, bbr, p50", "ms"), Tcp(Load { bbr: true, ping: true, ..UP }), "pc"),
    of("ping-bbr-p99", ("ping beside TCP up, bbr, p99", "ms"), Tcp(Load { bbr: true, ping: true, ..UP }), "pc"),
    of("tcp-cut", ("TCP up, veth cuts", "Gbit/s"), Tcp(Load { veth: Veth::Cuts, ..UP }), "pcq"),
    of("udp-1200", ("UDP 1,200 B, ≤ 1 % loss", "kpps"), UdpRate(1_200), "prgcq"),
    of("udp-64", ("UDP 64 B, ≤ 1 % loss", "kpps"), UdpRate(64), "pgcq"),
    of("udp-200k", ("UDP at 200 kpps, arrived", "kpps"), UdpOffered(1_200, 200), "pq"),
    of("ping-idle", ("ping, idle, p50", "ms"), PingIdle, "phcq"),
    of("cpu-idle", ("CPU when idle", "%"), CpuIdle, "pq"),
    of("memory", ("peak memory", "MB"), Test::Memory, "pq"),
    of("request-tcp-idle-p50", ("TCP request, idle, p50", "µs"), Requests(Exchange::Tcp), "pro"),
    of("request-tcp-idle-p99", ("TCP request, idle, p99", "µs"), Requests(Exchange::Tcp), "pro"),
    of("request-tcp-idle-p99.9", ("TCP request, idle, p99.9", "µs"), Requests(Exchange::Tcp), "po"),
    of("request-udp-idle-p50", ("UDP request, idle, p50", "µs"), Requests(Exchange::Udp), "pro"),
    of("request-udp-idle-p99", ("UDP request, idle, p99", "µs"), Requests(Exchange::Udp), "po"),
    of("request-udp-idle-p99.9", ("UDP request, idle, p99.9", "µs"), Requests(Exchange::Udp), "po"),
    of("request-tcp-loaded-p50", ("TCP request beside TCP, p50", "µs"), RequestsBesideTcp(Exchange::Tcp), "po"),
    of("request-tcp-loaded-p99", ("TCP request beside TCP, p99", "µs"), RequestsBesideTcp(Exchange::Tcp), "po"),
    of("request-tcp-loaded-p99.9", ("TCP request beside TCP, p99.9", "µs"), RequestsBesideTcp(Exchange::Tcp), "po"),
    of("request-udp-loaded-p50", ("UDP request beside TCP, p50", "µs"), RequestsBesideTcp(Exchange::Udp), "po"),
    of("request-udp-loaded-p99", ("UDP request beside TCP, p99", "µs"), RequestsBesideTcp(Exchange::Udp), "po"),
    of("request-udp-loaded-p99.9", ("UDP request beside TCP, p99.9", "µs"), RequestsBesideTcp(Exchange::Udp), "po"),
    of("connections", ("connections with a request", "1/s"), Requests(TcpConnect { at_once: 1 }), "prg"),
    of("connections-16", ("the same, 16 at a time", "1/s"), Requests(TcpConnect { at_once: 16 }), "rg"),
    of("requests", ("requests on one connection", "1/s"), Requests(Exchange::Tcp), "rg"),
    of("tcp-up-syscalls", ("TCP up", "kcalls/GB"), Tcp(UP), "prgo"),
    of("tcp-up-memory", ("TCP up, peak memory", "MB"), Tcp(UP), "prgo"),
    of("tcp-down-cpu", ("TCP down", "CPU s/GB"), Tcp(DOWN), "prgho"),
    of("tcp-down-syscalls", ("TCP down", "kcalls/GB"), Tcp(DOWN), "prgo"),
    of("tcp-down-memory", ("TCP down, peak memory", "MB"), Tcp(DOWN), "po"),
    of("tcp-8-up", ("TCP up, 8 streams", "Gbit/s"), Tcp(Load { streams: 8, ..UP }), "prg"),
    of("tcp-8-up-cpu", ("TCP up, 8 streams", "CPU s/GB"), Tcp(Load { streams: 8, ..UP }), "prg"),
    of("tcp-8-up-syscalls", ("TCP up, 8 streams", "kcalls/GB"), Tcp(Load { streams: 8, ..UP }), "pr"),
    of("tcp-8-up-memory", ("TCP up, 8 streams, peak memory", "MB"), Tcp(Load { streams: 8, ..UP }), "prg"),
    of("tcp-8-down", ("TCP down, 8 streams", "Gbit/s"), Tcp(Load { streams: 8, ..DOWN }), "prg"),
    of("tcp-8-down-cpu", ("TCP down, 8 streams", "CPU s/GB"), Tcp(Load { streams: 8, ..DOWN }), "p"),
    of("tcp-8-down-syscalls", ("TCP down, 8 streams", "kcalls/GB"), Tcp(Load { streams: 8, ..DOWN }), "p"),
    of("tcp-8-down-memory", ("TCP down, 8 streams, peak memory", "MB"), Tcp(Load { streams: 8, ..DOWN }), "p"),
    of("tcp-loss", ("TCP up, 1 % lost", "Gbit/s"), Tcp(Load { veth: Veth::Loses, ..UP }), "pr"),
    of("tcp-loss-cpu", ("TCP up, 1 % lost", "CPU s/GB"), Tcp(Load { veth: Veth::Loses, ..UP }), "p"),
    of("tcp-loss-syscalls", ("TCP up, 1 % lost", "kcalls/GB"), Tcp(Load { veth: Veth::Loses, ..UP }), "p"),
    of("tcp-loss-memory", ("TCP up, 1 % lost, peak memory", "MB"), Tcp(Load { veth: Veth::Loses, ..UP }), "p"),
    of("tcp-far-0.1", ("TCP up, 20 ms, 0.1 % lost", "Mbit/s"), Tcp(Load { veth: Veth::Far(1), ..UP }), "r"),
    of("tcp-far-1", ("TCP up, 20 ms, 1 % lost", "Mbit/s"), Tcp(Load { veth: Veth::Far(10), ..UP }), "r"),
    of("udp-64-most", ("UDP 64 B, peak arrival rate", "kpps"), UdpCurve(64), "p"),
    of("udp-512-most", ("UDP 512 B, peak arrival rate", "kpps"), UdpCurve(512), "p"),
    of("flows-1000", ("TCP up beside 1,000 idle flows", "Gbit/s"), Flows(1_000), "g"),
    of("flows-1000-open", ("came up of 1,000", "flows"), Flows(1_000), "g"),
    of("flows-1000-memory", ("peak memory with 1,000 flows", "MB"), Flows(1_000), "g"),
    of("flows-8000", ("TCP up beside 8,000 idle flows", "Gbit/s"), Flows(8_000), "g"),
    of("flows-8000-open", ("came up of 8,000", "flows"), Flows(8_000), "g"),
    of("flows-8000-memory", ("peak memory with 8,000 flows", "MB"), Flows(8_000), "g"),
    of("relayed", ("", "Gbit/s"), Tcp(Load { streams: 8, ..UP }), "f"),
    of("relayed-cpu", ("", "GB/CPU s"), Tcp(Load { streams: 8, ..UP }), "f"),
    of("cpus", ("", "CPUs"), Tcp(Load { streams: 8, ..UP }), "f"),
    of("calls", ("", "kcalls/GB"), Tcp(Load { streams: 8, ..UP }), "f"),
    of("udp-1200-most", ("UDP 1,200 B, peak arrival rate", "kpps"), UdpCurve(1_200), "po"),
];

impl Set {
    /// Finds the scenes called `names`, of whatever set; without names, those of this set.
    ///
    /// # Errors
    /// If a name is unknown; lists all names.
    pub(crate) fn scenes(self, names: &[String]) -> Result<Vec<&'static Scene>> {
        let letter = char::from(self as u8);
        let own = SCENES.iter().filter(|scene| scene.sets.contains(letter));
        let named = |name: &String| {
            let scene = SCENES.iter().find(|scene| scene.name == name);
            let known = || SCENES.iter().map(|scene| scene.name).join(", ");
            scene.with_context(|| format!("no row is called {name}: {}", known()))
        };
        match names {
            [] => Ok(own.collect()),
            names => names.iter().map(named).collect(),
        }
    }
}

const fn of(
    name: &'static str,
    figure: (&'static str, &'static str),
    test: Test,
    sets: &'static str,
) -> Scene {
    Scene {
        name,
        figure,
        test,
        sets,
    }
}

impl Scene {
    /// Returns whether it shows this figure of its test: the one in its unit, or that percentile.
    pub(super) fn shows(&self, figure: &str) -> bool {
        let (name, unit) = self.figure;
        unit == figure || name.rsplit(", ").next() == Some(figure)
    }

    /// Returns whether `contender` has a figure in this scene; the bare veth has those that need no daemon.
    pub(crate) fn is_for(&self, contender: &Contender) -> bool {
        match contender.kind {
            Kind::WireGuard if contender.is_variant() => self.sets.contains('q'),
            Kind::OpenVpn => self.sets.contains('o'),
            Kind::Socks => !matches!(
                self.test,
                UdpRate(_) | Requests(Exchange::Udp) | RequestsBesideTcp(Exchange::Udp)
            ),
            _ => true,
        }
    }
}

/// Groups scenes by the test that yields them, in order; memory is read last.
pub(crate) fn by_test<'a>(scenes: &[&'a Scene]) -> Vec<Vec<&'a Scene>> {
    let mut groups: Vec<Vec<&Scene>> = Vec::new();
    for scene in scenes {
        let mut known = groups.iter_mut();
        match known.find(|group| group[0].test == scene.test) {
            Some(group) => group.push(scene),
            None => groups.push(vec![scene]),
        }
    }
    groups.sort_by_key(|group| match group[0].test {
        CpuIdle => 0,
        PingIdle => 1,
        Test::Memory => 3,
        _ => 2,
    });
    groups
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_scene_has_a_name_and_a_figure_of_its_own() {
        assert!(SCENES.iter().map(|scene| scene.name).all_unique());
        assert!(SCENES.iter().map(|scene| scene.figure).all_unique());
    }

    #[test]
    fn every_scene_shows_one_figure_of_its_test() {
        let figures =
            "Gbit/s|Mbit/s|kpps|1/s|flows|CPU s/GB|GB/CPU s|CPUs|kcalls/GB|MB|%|p50|p99|p99.9";
        for scene in SCENES {
            let shown = figures.split('|').filter(|figure| scene.shows(figure));
            assert_eq!(shown.count(), 1, "{}", scene.name);
        }
    }

    #[test]
    fn a_test_runs_once_for_all_its_scenes_and_memory_comes_last() {
        let names = ["memory", "tcp-up", "tcp-up-cpu", "cpu-idle"].map(str::to_owned);
        let groups = by_test(&Set::Programs.scenes(&names).unwrap());
        let names = |group: Vec<&Scene>| group.iter().map(|scene| scene.name).join(" ");
        let groups: Vec<_> = groups.into_iter().map(names).collect();
        assert_eq!(groups, ["cpu-idle", "tcp-up tcp-up-cpu", "memory"]);
    }

    #[test]
    fn variants_and_openvpn_take_part_only_where_their_figures_are_shown() {
        let all = Set::Programs.contenders(Path::new("convoy"), Path::new("bin"));
        let count = |name: &str| {
            let one = all.iter().find(|one| one.name == name).unwrap();
            SCENES.iter().filter(|scene| scene.is_for(one)).count()
        };
        assert_eq!(count("convoy"), SCENES.len());
        assert_eq!(count("gotatun"), SCENES.len());
        assert!(count("gotatun+q") < count("openvpn"));
    }
}
