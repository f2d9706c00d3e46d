//! All peers of a daemon busy at once: rates, CPU time and full batches, beside wireguard-go.

mod crowd;
mod flow;

use std::time::Duration;

use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::table::{self, cell, number, spread};
use crate::tunnel::Contender;
use crowd::{Crowd, PAYLOAD};
use flow::Flow;

const LEGEND: &str = "\
A hub sends to all its peers (down) or receives from them (up): UDP with 1,392 bytes of payload, 1 or 32 datagrams \
for one peer, then for the next. One thread plays all peers. It keeps 1,900 datagrams on the way, so that the hub \
works as fast as it can; it counts what the hub sends without opening it, and seals in advance what the hub \
receives. CPU time is that of the hub. Packets per call are those of a UDP send (down) or of a write to the TUN \
(up). Every interface has Convoy's `txqueuelen`. `*`: the thread, not the hub, set the limit in at least one round. \
`†`: datagrams were lost.";
/// A hub that is the bottleneck keeps the thread waiting for more than this share of the time.
const WAITS: f64 = 0.01;
/// Share of datagrams lost from which a row is marked.
const LOSES: f64 = 0.001;

/// A direction, and the number of consecutive datagrams for one peer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Traffic {
    /// From the peers to the hub.
    is_up: bool,
    train: usize,
}

/// Single datagrams are the worst case for batches; TCP and QUIC send trains.
const TRAFFIC: [(bool, usize); 4] = [(false, 1), (false, 32), (true, 1), (true, 32)];

/// A program with this many busy peers.
pub(super) struct Point {
    contender: Contender,
    peers: u32,
    /// One list per round, each with one run per kind of traffic.
    rounds: Vec<Vec<Run>>,
}

/// One kind of traffic in one round.
struct Run {
    flow: Flow,
    cpu: Duration,
    /// UDP sends, or writes to the TUN.
    calls: u64,
}

/// One kind of traffic over all rounds; without figures if the program is absent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Busy {
    program: String,
    peers: u32,
    traffic: Traffic,
    kpps: Option<Sample>,
    cpu_ns_per_packet: Option<Sample>,
    packets_per_call: Option<Sample>,
    /// Share of the datagrams.
    lost: Option<Sample>,
    /// Share of the time that the generator waited for the hub.
    waited: Option<Sample>,
}

impl Point {
    pub(super) fn new(contender: &Contender, peers: u32) -> Self {
        Self {
            contender: contender.clone(),
            peers,
            rounds: Vec::new(),
        }
    }

    /// Starts the daemon and measures each kind of traffic for `window`; does nothing if the program is absent.
    pub(super) fn measure(&mut self, window: Duration) -> anyhow::Result<()> {
        if self.contender.version.is_some() {
            let mut crowd = Crowd::start(&self.contender.implementation(), self.peers)?;
            let traffic = TRAFFIC.into_iter();
            let runs =
                traffic.map(|(is_up, train)| crowd.measure(Traffic { is_up, train }, window));
            self.rounds.push(runs.collect::<Result<_, _>>()?);
        }
        Ok(())
    }

    pub(super) fn name(&self) -> String {
        let name = &self.contender.name;
        match self.contender.version {
            Some(_) => name.clone(),
            None => format!("{name} (absent)"),
        }
    }

    /// One row per kind of traffic.
    pub(super) fn rows(&self) -> impl Iterator<Item = Busy> {
        (0..).zip(TRAFFIC).map(|(n, (is_up, train))| {
            let of = |of: fn(&Run) -> f64| {
                let runs = self.rounds.iter().map(|runs: &Vec<Run>| of(&runs[n]));
                Sample::of(runs.collect())
            };
            Busy {
                program: self.name(),
                peers: self.peers,
                traffic: Traffic { is_up, train },
                kpps: of(|run| run.packets() / run.seconds() / 1e3),
                cpu_ns_per_packet: of(|run| run.cpu.as_nanos() as f64 / run.packets()),
                packets_per_call: of(|run| run.packets() / run.calls as f64),
                lost: of(|run| 1.0 - run.packets() / run.flow.sent as f64),
                waited: of(|run| run.flow.waited.as_secs_f64() / run.seconds()),
            }
        })
    }
}

impl Run {
    fn packets(&self) -> f64 {
        self.flow.arrived as f64
    }

    fn seconds(&self) -> f64 {
        self.flow.time.as_secs_f64()
    }
}

/// The table, by traffic, peers and program; nothing without rows.
pub(super) fn table(rows: &[Busy]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| (row.traffic.is_up, row.traffic.train, row.peers));
    let head = "traffic | busy peers | program | kpps | Gbit/s | CPU ns/packet | packets/call";
    let table = table::markdown(head, rows.into_iter().map(Busy::cells));
    format!("\n### By busy peers\n\n{LEGEND}\n\n{table}")
}

impl Busy {
    fn cells(&self) -> Vec<String> {
        let Traffic { is_up, train } = self.traffic;
        let way = if is_up { "up" } else { "down" };
        let waited = self.waited.as_ref().is_none_or(|it| it.min > WAITS);
        let lost = self.lost.as_ref().is_some_and(|it| it.max > LOSES);
        let marks = [("*", !waited), ("†", lost)];
        let marks = marks
            .into_iter()
            .filter_map(|(mark, is)| is.then_some(mark));
        let kpps = self.kpps.as_ref();
        let gbps = kpps.map(|kpps| kpps.median * PAYLOAD as f64 * 8.0 / 1e6);
        let per_call = self.packets_per_call.as_ref();
        vec![
            format!("{way}, {train} each{}", marks.collect::<String>()),
            self.peers.to_string(),
            self.program.clone(),
            cell(kpps.map(|kpps| spread(kpps, 0))),
            number(gbps, 2),
            cell(self.cpu_ns_per_packet.as_ref().map(|ns| spread(ns, 0))),
            number(per_call.map(|it| it.median), 1),
        ]
    }
}
