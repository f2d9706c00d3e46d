//! `make bench-peers`: compares Convoy with other programs on one machine, in interleaved rounds.
//!
//! Each round measures every contender once, with fresh daemons, in an order that rotates from round to round.
//! Ratios are taken within a round.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use convoy_rows::plot::{Plot, Scale};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use itertools::Itertools as _;

use crate::programs;
use crate::rounds::{interleaved, perform};
use crate::tunnel::contender::CONVOY;
use crate::tunnel::{Contender, Set, Stand, scenes};

/// Measures Convoy, other WireGuard programs and OpenVPN, and prints the tables
#[derive(Debug, clap::Args)]
#[command(after_help = "\
About 8 minutes a round with all contenders and rows: 70 s for each program, half of that for a variant \
(`NAME+q`, with Convoy's txqueuelen) and for OpenVPN. An interval of 95 % needs six rounds.")]
pub(crate) struct Args {
    /// Programs that need no root: convoy exec, convoy up --userspace, wireproxy and onetun
    #[arg(long)]
    rootless: bool,
    /// Gateways: Convoy with the kernel's masquerading and with its own NAT, pasta and slirp4netns
    #[arg(long, conflicts_with = "rootless")]
    gateway: bool,
    /// Ways from one client to another: straight, by a hub, and by a TURN server
    #[arg(long, conflicts_with_all = ["rootless", "gateway"])]
    paths: bool,
    #[command(flatten)]
    plan: Plan,
}

/// Measures convoy forward (tokio's own copy, buffers, splice(2)) and other forwarders (root)
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// One round with a second per TCP run: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(default_value_if("quick", "true", "1"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    reps: u32,
    /// Seconds per TCP run [default: 2, and 4 of forwarders]
    #[arg(long, value_name = "N", default_value_if("quick", "true", "1"))]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: Option<u64>,
    /// Only these rows
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders and the first; `NAME+q` is NAME with Convoy's txqueuelen on its interface
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    contenders: Vec<String>,
    /// File for all values [default: the set's file in benches/results; none for a part of the rows or contenders, or
    /// for fewer than six rounds]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Convoy program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// Directory of the other programs, filled by `make peers`
    #[arg(long, value_name = "DIR", default_value = "target/peers/bin")]
    peers: PathBuf,
}

const SENT: (&str, Scale) = ("sent (kpps)", Scale::Linear);

pub(crate) const PROGRAMS: Section = Section {
    title: "Against other programs",
    command: "bench-peers",
    file: "peers.jsonl",
    tables: &[defaults("Every program with its defaults"), VARIANTS],
    plots: &[
        Plot::new("peers-udp-64.svg", "UDP 64 B, arrived by sent", SENT, &[("udp-64-most", "kpps", Scale::Linear)]),
        Plot::new("peers-udp-512.svg", "UDP 512 B, arrived by sent", SENT, &[("udp-512-most", "kpps", Scale::Linear)]),
        Plot::new("peers-udp-1200.svg", "UDP 1,200 B, arrived by sent", SENT, &[("udp-1200-most", "kpps", Scale::Linear)]),
    ],
    legend: "\
Figures are medians over the rounds. `+q`: with Convoy's txqueuelen on its interface. CPU time and system calls (kcalls:
thousands) are totals of both daemons per gigabyte received; memory is that of the larger daemon. A ping is a UDP
datagram of 32 bytes every 10 ms and its echo; requests and answers have 32 bytes, one in flight. The highest UDP rate
is the one at which half of the probes lose at most 1 %.",
};
pub(crate) const ROOTLESS: Section = Section {
    title: "Without root",
    command: "bench-userspace",
    file: "rootless.jsonl",
    tables: &[defaults("")],
    plots: &[],
    legend: "\
Figures are medians over the rounds. The far end is always Convoy in TUN mode; the near end is the contender: Convoy in
TUN mode as root (`convoy`), `convoy exec` with the traffic's programs inside (`exec`), and otherwise a program that
forwards ports of the loopback (`-L` and the other programs without a mark) or is a SOCKS5 proxy there (`socks5`, `S5`).
CPU time, system calls and memory are those of all processes of the near end, without the generator; memory is their peak
resident set, added up. Networks that a program makes use the same congestion control as those of the bench: cubic,
unless the host denies it to namespaces. Requests and answers have 32 bytes. UDP is not sent through SOCKS5.",
};
pub(crate) const GATEWAYS: Section = Section {
    title: "Gateways",
    command: "bench-gateway",
    file: "gateway.jsonl",
    tables: &[defaults("")],
    plots: &[],
    legend: "\
Figures are medians over the rounds. A peer, Convoy in TUN mode, sends through the tunnel and the gateway to a server
behind it: Convoy in TUN mode as root, with the kernel's masquerading (`masquerade`); `convoy up --userspace --nat user`
(`nat`, with either engine); or `masquerade` in a namespace whose network is pasta or slirp4netns. There the program
carries the flows of peers and the datagrams of the tunnel: it moves every byte twice. CPU time, system calls and memory
are those of all processes of the gateway; memory is their peak resident set, added up, without what the kernel keeps.
Idle flows are TCP connections, opened one after another with a request and its answer each, for at most six seconds. If
the busy stream finds no room beside them, a tenth of them makes it.",
};
pub(crate) const PATHS: Section = Section {
    title: "What a path costs",
    command: "bench-paths",
    file: "paths.jsonl",
    tables: &[Table {
        heading: "",
        shows: |row| row.at.is_none(),
        corner: "path",
        line: |row| row.contender.clone(),
        column: Row::label,
        has_spread: true,
    }],
    plots: &[],
    legend: "\
Medians over the rounds, with the lowest and highest value in brackets. Two clients of `convoy up`: peers of each other
(`plain`), by a hub that runs Convoy (`hub`), by the path found with its help (`direct`), and by coturn over UDP, TCP
and TLS. CPU time is that of the sending or receiving client at the near end, without the hub's and coturn's.

Published elsewhere, on faster machines or slower networks, and never with CPU time: Tailscale, direct, 15.7 Gbit/s on
an i5-12400; by its relay over TLS (derper), 0.99 Gbit/s for one pair (Hyper-DERP's README); NetBird 0.74 over links of
1 Gbit/s, direct, 0.95 Gbit/s, and by its relay 0.1 (its issue 6021).",
};

pub(crate) const FORWARDERS: Section = Section {
    title: "Forwarders",
    command: "bench-forward",
    file: "forward.jsonl",
    tables: &[Table {
        heading: "",
        shows: |_| true,
        corner: "8 streams",
        line: |row| row.contender.clone(),
        column: Row::label,
        has_spread: false,
    }],
    plots: &[],
    legend: "\
Medians over interleaved rounds. CPU time is that of the forwarder and its children; perf counts all their system calls.
The generator runs on the same processors: a forwarder that has less than a CPU to itself is not the limit, and its bytes
per CPU second say what it would carry if it were. The published figures are those of another program on another machine,
with 8, 16 and 64 KiB: compare their ratios. socat starts a process for each connection; haproxy splices, too.",
};

/// Throughput in Gbit/s that is published of somebody else's forwarder of this kind on another machine.
const PUBLISHED: [(&str, f64); 3] = [
    ("tokio's copy, 8 KiB", 17.8),
    ("copy, 16 KiB", 28.6),
    ("copy, 64 KiB", 54.1),
];

const VARIANTS: Table = Table {
    shows: |row| row.at.is_none() && row.contender.ends_with("+q"),
    ..defaults("With Convoy's queue length")
};

const fn defaults(heading: &'static str) -> Table {
    Table {
        heading,
        shows: |row| row.at.is_none() && !row.contender.ends_with("+q"),
        corner: "",
        line: Row::label,
        column: |row| short(&row.contender),
        has_spread: false,
    }
}

/// A name short enough for eight columns.
fn short(name: &str) -> String {
    let shorter = [
        ("bare veth", "bare"),
        ("ports-smoltcp", "-L smol."),
        ("ports", "-L"),
        ("wireproxy-socks5", "wireprox. S5"),
        ("nat-smoltcp", "nat smol."),
        ("wireguard-go", "wg-go"),
        ("tailscale", "tailsc."),
        ("boringtun", "boringt."),
    ];
    shorter.iter().fold(name.to_owned(), |name, (long, short)| {
        name.replace(long, short)
    })
}

/// Runs the comparison and prints the tables.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (set, section) = match (args.rootless, args.gateway, args.paths) {
        (true, ..) => (Set::Rootless, &ROOTLESS),
        (_, true, _) => (Set::Gateways, &GATEWAYS),
        (.., true) => (Set::Paths, &PATHS),
        _ => (Set::Programs, &PROGRAMS),
    };
    args.plan.keep(section, &measure(&args.plan, set)?)
}

/// The same for forwarders, beside what is published.
pub(crate) fn forward(plan: &Plan) -> Result<()> {
    let mut run = measure(plan, Set::Forwarders)?;
    let end = run.rows.iter().position(|row| row.scene != "relayed");
    let (relayed, others) = run.rows.split_at(end.unwrap_or(run.rows.len()));
    let is_measured = |name| relayed.iter().any(|row| row.contender == name);
    let published = PUBLISHED.iter().filter(|(name, _)| is_measured(*name));
    let published = published
        .map(|(name, gbps)| Row::new("published", name, ("published", "Gbit/s"), 0, *gbps));
    run.rows = [relayed, &published.collect::<Vec<_>>(), others].concat();
    plan.keep(&FORWARDERS, &run)
}

fn measure(plan: &Plan, set: Set) -> Result<Run> {
    let scenes = set.scenes(&plan.only)?;
    let groups = scenes::by_test(&scenes);
    programs::ensure_root()?;
    programs::ensure_built(&plan.convoy)?;
    let asked = chosen(plan, set)?;
    let usual = if set == Set::Forwarders { 4 } else { 2 };
    let secs = plan.secs.unwrap_or(usual);
    let convoy = Contender::wireguard(CONVOY, &plan.convoy);
    let mut stand = Stand::new(&convoy, set, Duration::from_secs(secs))?;
    let mut run = Run::new(Vec::new());
    let mut contenders = Vec::new();
    for one in &asked {
        if let Some(why) = stand.absence(one) {
            let note = format!("**Not measured: {}**: {why}", one.name);
            eprintln!("{note}");
            run.origin.notes.push(note);
        } else {
            contenders.push(one);
        }
    }
    let programs = contenders.iter().filter(|one| !one.is_variant());
    let versions = programs.filter_map(|one| Some((&*one.name, one.version()?)));
    run.origin.versions = by_version(versions);
    let bare = Contender::bare();
    let mut steps = interleaved(&contenders, plan.reps);
    if set == Set::Programs {
        steps.insert(0, (0, &bare));
    }
    perform(steps, |(round, contender)| {
        let before = run.rows.len();
        let measured = stand.start(contender).and_then(|()| {
            let mut groups = groups.iter();
            groups.try_for_each(|scenes| stand.measure(scenes, round, &mut run))
        });
        let (name, number) = (&contender.name, round + 1);
        if let Err(error) = measured {
            let note = format!("Failed: {name} in round {number}: {error:#}");
            run.origin.notes.push(note);
        }
        let rows = run.rows[before..].iter().filter(|row| row.at.is_none());
        let mut figures = rows.map(|row| format!("{} {:.2}", row.scene, row.value));
        Ok(format!("{name}: {}", figures.join("; ")))
    })?;
    // In the order of the tables, whatever the order of the tests.
    let place = |row: &Row| scenes.iter().position(|scene| scene.name == row.scene);
    run.rows.sort_by_key(place);
    Ok(run)
}

/// Names the contenders of each version.
fn by_version<'a>(versions: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    let versions: Vec<_> = versions.collect();
    let known = versions.iter().map(|(_, version)| version).unique();
    let text = |version: &String| {
        let own = versions.iter().filter(|(_, other)| other == version);
        format!("{}: {version}", own.map(|(name, _)| name).join(", "))
    };
    known.map(text).collect()
}

/// The requested contenders, and the one that begins the set.
fn chosen(plan: &Plan, set: Set) -> Result<Vec<Contender>> {
    let mut all = set.contenders(&plan.convoy, &plan.peers);
    let names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
    if let Some(stranger) = plan.contenders.iter().find(|name| !names.contains(name)) {
        bail!("no contender is called {stranger}: {}", names.join(", "));
    }
    let (all_asked, first) = (plan.contenders.is_empty(), &names[0]);
    all.retain(|one| all_asked || one.name == *first || plan.contenders.contains(&one.name));
    Ok(all)
}

impl Plan {
    /// Prints a result, and keeps it in its set's file if it is whole.
    fn keep(&self, section: &Section, run: &Run) -> Result<()> {
        let is_part = !self.only.is_empty() || !self.contenders.is_empty();
        let is_whole = !is_part && !self.quick && self.reps >= 6;
        section.keep(run, self.json.as_deref(), is_whole)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn contenders_of_one_version_are_named_together() {
        let versions = [("convoy", "1"), ("socat", "2"), ("exec", "1")];
        let versions = versions.map(|(name, version)| (name, version.to_owned()));
        let expected = ["convoy, exec: 1", "socat: 2"];
        assert_eq!(by_version(versions.into_iter()), expected);
    }

    #[test]
    fn convoy_takes_part_in_any_choice_and_a_stranger_is_refused() {
        let mut plan = Program::parse_from(["peers", "--contenders", "openvpn"]).plan;
        let names = chosen(&plan, Set::Programs).unwrap().into_iter();
        let names: Vec<_> = names.map(|one| one.name).collect();
        assert_eq!(names, ["convoy", "openvpn"]);
        plan.contenders = vec!["nobody".to_owned()];
        let refused = chosen(&plan, Set::Programs).unwrap_err().to_string();
        assert!(refused.contains("boringtun+q"), "{refused}");
    }
}
