//! `make flood`: measures how much a flood of datagrams slows a tunnel's traffic.
//!
//! ```text
//!   attacker                                   right                          left
//!   generator                                  daemon wg0 ══════ tunnel ══════ wg0 daemon
//!   198.18.0.0/16 10.10.0.1 ── veth ── 10.10.0.2   veth0 ───────── veth ────── veth0
//!                                              TCP receiver                    TCP sender
//! ```
//!
//! It measures two kinds also while TCP goes the other way, so that the attacked daemon sends.
//!
//! For each kind of flood it runs interleaved pairs: TCP through the tunnel while the generator aims at a closed port
//! of the right host, then while it aims at the daemon's port. The first run shows the cost of the kernel and the
//! generator; the ratio of the two is the daemon's cost.
//!
//! Then it floods the daemon with initiations whose source is the peer's own address. Each handshake that the peer
//! starts meanwhile must succeed within seconds.
//!
//! It fails if a kind of flood fails, and names it.

mod lockout;
mod scene;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use convoy_lab::flood::Datagrams;
use convoy_lab::measure::{Direction, process};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;

use crate::programs;
use crate::rounds::rotated;
use scene::{Captured, Scene, beside};
use verdict::DAEMON;

/// Floods a daemon's port while TCP goes through its tunnel, and compares with a closed port
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The daemon to attack
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    program: PathBuf,
    /// Only these kinds of flood
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Also forge the peer's own address if --kinds is given
    #[arg(long)]
    lockout: bool,
    /// Pairs of runs per kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds per run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: u64,
    /// Datagrams per second
    #[arg(long, default_value_t = 100_000)]
    rate: u32,
    /// Also write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Random bytes of random lengths
    Noise,
    /// Messages with the type and length of initiations, but wrong MACs
    WrongMac,
    /// Initiations that the peer sent earlier
    ReplayedHandshakes,
    /// The same with a wrong MAC2 in answer to a cookie
    WrongCookies,
    /// Data that the peer sent earlier in the running session
    ReplayedData,
    /// Data for the running session with future counters: each is decrypted in vain
    ForgedData,
    /// Trains of 64 KiB in segments of 1,472 bytes with a shorter last one
    Trains,
    /// Trains of 64 segments of 100 bytes with a shorter last one
    ShortTrains,
}

/// The target port of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    ClosedPort,
    Daemon,
}

/// A contender beside [`DAEMON`].
const CLOSED: &str = "closed port";

const SECTION: Section = Section {
    title: "Floods",
    command: "flood",
    file: "flood.jsonl",
    tables: &[
        Table {
            heading: "",
            shows: |row| row.scene != lockout::SCENE,
            corner: "flood",
            line: |row| row.scene.clone(),
            column: |row| match row.contender == CLOSED {
                true => format!("closed: {}", row.label()),
                false => row.label(),
            },
            has_spread: false,
        },
        lockout::TABLE,
    ],
    plots: &[],
    legend: "\
Medians over the pairs of runs. kept: TCP throughput during the flood, relative to the same flood at a closed port;
reached: datagrams of the flood that the daemon counted, by its reasons; no room: datagrams that overflowed its socket,
including the transfer's; CPUs: those that the daemon used.",
};

/// Runs all floods, prints the results and judges them.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    programs::ensure_built(&args.program)?;
    let kinds = match &args.kinds[..] {
        [] => Kind::value_variants(),
        kinds => kinds,
    };
    let mut scene = Scene::new(&args.program)?;
    let mut run = Run::new(Vec::new());
    if !scene.has_silent_ports {
        let note = "The closed port answers some datagrams by ICMP errors.";
        run.origin.notes.push(note.to_owned());
    }
    let at_receiver = kinds.iter().map(|kind| (*kind, Direction::Up));
    let at_sender = kinds.iter().filter(|kind| kind.busies_a_sender());
    for (kind, way) in at_receiver.chain(at_sender.map(|kind| (*kind, Direction::Down))) {
        let before = run.rows.len();
        measure(&mut scene, kind, way, args, &mut run).with_context(|| kind.name())?;
        let rows = run.rows[before..].iter();
        let rows = rows.filter(|row| row.contender == DAEMON);
        let figures = rows.map(|row| format!("{} {:.2}", row.label(), row.value));
        eprintln!(
            "{}: {}",
            kind.name(),
            figures.collect::<Vec<_>>().join("; ")
        );
    }
    if args.kinds.is_empty() || args.lockout {
        lockout::at_each_rate(&mut scene, &mut run)?;
    }
    SECTION.keep(&run, args.json.as_deref(), false)?;
    match &verdict::failures(&run, f64::from(args.rate) / 1e3)[..] {
        [] => Ok(()),
        failures => bail!("failed:\n{}", failures.join("\n")),
    }
}

fn measure(
    scene: &mut Scene,
    kind: Kind,
    way: Direction,
    args: &Args,
    run: &mut Run,
) -> anyhow::Result<()> {
    let name = match way {
        Direction::Up => kind.name(),
        Direction::Down => kind.name() + ", at the sender",
    };
    let lines = scene.log_lines();
    for round in 0..args.rounds {
        scene.stand.check()?;
        // Captured in every round, since sessions are renewed.
        scene.capture_data()?;
        let datagrams = kind.datagrams(&scene.captured);
        let mut gbps = [0.0; 2];
        for aim in rotated([Aim::ClosedPort, Aim::Daemon], round) {
            let (name, window) = (&name[..], Duration::from_secs(args.secs));
            gbps[aim as usize] = one(scene, &datagrams, (aim, way), args.rate, window, |it| {
                let contender = [CLOSED, DAEMON][aim as usize];
                run.push(Row::new(name, contender, it.0, round, it.1));
            })?;
        }
        let kib = process::usage(scene.right().daemon.pid())?.resident_kib;
        let mut add = |figure, value| run.push(Row::new(&name, DAEMON, figure, round, value));
        add(verdict::KEPT, gbps[1] / gbps[0]);
        add(verdict::MEMORY, kib as f64);
    }
    // The daemons have survived, and the tunnel still works.
    scene.stand.check()?;
    scene.stand.bed().wait_until_up()?;
    let lines = (scene.log_lines() - lines) as f64;
    run.push(Row::new(&name, DAEMON, verdict::LOG_LINES, 0, lines));
    Ok(())
}

/// TCP through the tunnel while a flood is aimed at `aim`. Returns Gbit/s; passes every figure to `add`.
fn one(
    scene: &mut Scene,
    datagrams: &Datagrams,
    (aim, way): (Aim, Direction),
    rate: u32,
    window: Duration,
    mut add: impl FnMut(((&str, &str), f64)),
) -> anyhow::Result<f64> {
    let before = scene.settled()?;
    let pid = scene.right().daemon.pid();
    let stand = &mut scene.stand;
    let generator = match aim {
        Aim::ClosedPort => &mut scene.at_closed_port,
        Aim::Daemon => &mut scene.at_daemon,
    };
    let ((gbps, cpu), flooded) = beside(generator, datagrams, rate, || {
        let before = process::cpu_time(pid)?;
        let gbps = stand.one_stream(way, window)?;
        Ok((gbps, process::cpu_time(pid)? - before))
    })?;
    add((("TCP", "Gbit/s"), gbps));
    add((("", "CPUs"), cpu.as_secs_f64() / window.as_secs_f64()));
    let counters = scene.settled()?.since(&before);
    if aim == Aim::Daemon {
        let sent = flooded.datagrams as f64;
        add((verdict::SENT, sent / flooded.seconds / 1e3));
        let drops: u64 = counters.inbound_drops().map(|(_, count)| count).sum();
        add((verdict::REACHED, drops as f64 / sent.max(1.0) * 100.0));
        add((("no room", ""), counters.kernel_drops() as f64));
        add((verdict::COOKIES, counters.cookies_sent as f64));
    }
    Ok(gbps)
}

impl Kind {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether the flood is also aimed at a sending daemon: one kind is cheap to drop, the other is not.
    fn busies_a_sender(self) -> bool {
        matches!(self, Self::Noise | Self::ForgedData)
    }

    fn datagrams(self, captured: &Captured) -> Datagrams {
        match self {
            Self::Noise => Datagrams::noise(),
            Self::WrongMac => Datagrams::wrong_macs(),
            Self::ReplayedHandshakes => Datagrams::replayed(captured.initiations.clone()),
            Self::WrongCookies => Datagrams::wrong_cookies(&captured.initiations),
            Self::ReplayedData => Datagrams::replayed(captured.data.clone()),
            Self::ForgedData => Datagrams::forged(captured.data.clone()),
            Self::Trains => Datagrams::trains(1472),
            Self::ShortTrains => Datagrams::trains(100),
        }
    }
}
