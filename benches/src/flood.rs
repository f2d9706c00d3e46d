//! `make flood`: measures how much a flood of datagrams slows a tunnel's traffic.
//!
//! ```text
//!   attacker                                   right                          left
//!   generator                                  daemon wg0 ══════ tunnel ══════ wg0 daemon
//!   198.18.0.0/16 10.10.0.1 ── veth ── 10.10.0.2   veth0 ───────── veth ────── veth0
//!                                              TCP receiver                    TCP sender
//! ```
//!
//! For each kind of flood it runs interleaved pairs: TCP through the tunnel while the generator aims at a closed port
//! of the right host, then while it aims at the daemon's port. The ratio of the two is the daemon's cost. It measures
//! two kinds also while TCP goes the other way, so that the attacked daemon sends. Last, the source of initiations is the
//! peer's own address, while the peer starts handshakes.

mod scene;
mod verdict;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use convoy_lab::LabError;
use convoy_lab::flood::Datagrams;
use convoy_lab::measure::{Direction, process};
use convoy_rows::row::{Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use itertools::Itertools as _;

use crate::programs;
use crate::rounds::rotated;
use crate::tunnel::Stand;
use scene::{Scene, beside};
use verdict::{CLOSED, DAEMON, FORGED, HANDSHAKES, UNTIL_HANDSHAKE};

/// Floods a daemon's port while TCP goes through its tunnel, and compares with a closed port
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The daemon to attack
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    program: PathBuf,
    /// Only these kinds of flood
    #[arg(long, value_delimiter = ',', value_parser = names())]
    kinds: Vec<String>,
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

/// A kind of flood: its name, help, and datagrams.
type Kind = (&'static str, &'static str, fn(&Scene) -> Datagrams);

#[rustfmt::skip]
const KINDS: [Kind; 8] = [
    ("noise", "Random bytes of random lengths", |_| Datagrams::noise()),
    ("wrong-mac", "Messages with the type and length of initiations, but wrong MACs", |_| Datagrams::wrong_macs()),
    ("replayed-handshakes", "Initiations that the peer sent earlier",
        |it| Datagrams::replayed(it.initiations.clone())),
    ("wrong-cookies", "The same with a wrong MAC2 in answer to a cookie",
        |it| Datagrams::wrong_cookies(&it.initiations)),
    ("replayed-data", "Data that the peer sent earlier in the running session",
        |it| Datagrams::replayed(it.data.clone())),
    ("forged-data", "Data for the running session with future counters: each is decrypted in vain",
        |it| Datagrams::forged(it.data.clone())),
    ("trains", "Trains of 64 KiB in segments of 1,472 bytes with a shorter last one", |_| Datagrams::trains(1472)),
    ("short-trains", "Trains of 64 segments of 100 bytes with a shorter last one", |_| Datagrams::trains(100)),
];
/// Also aimed at a sending daemon: one kind is cheap to drop, the other is not.
const AT_SENDER: [&str; 2] = ["noise", "forged-data"];

fn names() -> PossibleValuesParser {
    let names = KINDS.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names)
}

const SECTION: Section = Section {
    title: "Floods",
    command: "flood",
    file: "flood.jsonl",
    tables: &[
        Table {
            heading: "",
            shows: |row| row.scene != FORGED,
            corner: "flood",
            line: |row| row.scene.clone(),
            column: |row| match row.contender == CLOSED {
                true => format!("closed: {}", row.label()),
                false => row.label(),
            },
            has_spread: false,
        },
        Table {
            heading: "Handshakes of a peer whose own address the flood forges",
            shows: |row| row.scene == FORGED,
            corner: "datagrams/s",
            line: |row| row.place().to_string(),
            column: Row::label,
            has_spread: true,
        },
    ],
    plots: &[],
    legend: "\
Medians over the pairs of runs. kept: TCP throughput during the flood, relative to the same flood at a closed port;
reached: datagrams of the flood that the daemon counted, by its reasons; no room: datagrams that overflowed its socket,
including the transfer's; CPUs: those that the daemon used.",
};

/// Handshakes at each rate.
const TRIES: usize = 10;

/// Runs all floods, prints the results and judges them.
pub(crate) fn run(args: &Args) -> Result<()> {
    programs::ensure_built(&args.program)?;
    let is_chosen = |name| args.kinds.is_empty() || args.kinds.iter().any(|it| it == name);
    let kinds = KINDS.iter().filter(|(name, ..)| is_chosen(*name));
    let mut run = Run::new(Vec::new());
    let mut scene = Scene::new(&args.program, &mut run.origin.notes)?;
    let at_sender = kinds.clone().filter(|(name, ..)| AT_SENDER.contains(name));
    let at_sender = at_sender.map(|kind| (kind, Direction::Down));
    for (kind, way) in kinds.map(|kind| (kind, Direction::Up)).chain(at_sender) {
        let before = run.rows.len();
        measure(&mut scene, kind, way, args, &mut run).context(kind.0)?;
        let rows = run.rows[before..].iter();
        let rows = rows.filter(|row| row.contender == DAEMON);
        let mut figures = rows.map(|row| format!("{} {:.2}", row.label(), row.value));
        eprintln!("{}: {}", kind.0, figures.join("; "));
    }
    if args.kinds.is_empty() || args.lockout {
        forge(&mut scene, &mut run)?;
    }
    SECTION.keep(&run, args.json.as_deref(), false)?;
    match &verdict::failures(&run, f64::from(args.rate) / 1e3)[..] {
        [] => Ok(()),
        failures => bail!("failed:\n{}", failures.join("\n")),
    }
}

/// Runs TCP through the tunnel during a flood of the closed port, and of the daemon.
fn measure(
    scene: &mut Scene,
    (name, _, datagrams): &Kind,
    way: Direction,
    args: &Args,
    run: &mut Run,
) -> Result<()> {
    let name = match way {
        Direction::Up => name.to_string(),
        Direction::Down => format!("{name}, at the sender"),
    };
    let (lines, pid) = (scene.log_lines(), scene.right().daemon.pid());
    let window = Duration::from_secs(args.secs);
    for round in 0..args.rounds {
        scene.stand.check()?;
        // Captured in every round, since sessions are renewed.
        scene.capture_data()?;
        let datagrams = datagrams(scene);
        let mut gbps = [0.0; 2];
        for (aim, contender) in rotated([CLOSED, DAEMON].into_iter().enumerate(), round) {
            let before = scene.settled()?;
            let (stand, generator) = (&mut scene.stand, &mut scene.generators[aim]);
            let (cpu, flooded) = beside(generator, &datagrams, args.rate, || {
                let before = process::cpu_time(pid)?;
                gbps[aim] = stand.one_stream(way, window)?;
                Ok(process::cpu_time(pid)? - before)
            })?;
            let counters = scene.settled()?.since(&before);
            let mut add = |of, value| run.push(Row::new(&name, contender, of, round, value));
            add(verdict::TCP, gbps[aim]);
            add(("", "CPUs"), cpu.as_secs_f64() / window.as_secs_f64());
            if contender == DAEMON {
                let sent = flooded.datagrams as f64;
                let drops: u64 = counters.inbound_drops().map(|(_, count)| count).sum();
                add(verdict::SENT, sent / flooded.seconds / 1e3);
                add(verdict::REACHED, drops as f64 / sent.max(1.0) * 100.0);
                add(("no room", ""), counters.kernel_drops() as f64);
                add(verdict::COOKIES, counters.cookies_sent as f64);
            }
        }
        let kib = process::usage(pid)?.resident_kib;
        let kept = gbps[1] / gbps[0];
        for (figure, value) in [(verdict::KEPT, kept), (verdict::MEMORY, kib as f64)] {
            run.push(Row::new(&name, DAEMON, figure, round, value));
        }
    }
    // The daemons have survived, and the tunnel still works.
    scene.stand.check()?;
    scene.stand.bed.wait_until_up()?;
    let lines = (scene.log_lines() - lines) as f64;
    run.push(Row::new(&name, DAEMON, verdict::LOG_LINES, 0, lines));
    Ok(())
}

/// Floods at each rate from the peer's own address, half of the datagrams with a wrong MAC2, while the peer starts
/// handshakes.
fn forge(scene: &mut Scene, run: &mut Run) -> Result<()> {
    let datagrams = Datagrams::with_and_without_mac2(&scene.initiations);
    let Scene { stand, forging, .. } = scene;
    for (rate, _) in HANDSHAKES {
        let (seconds, flooded) = beside(forging, &datagrams, rate, || {
            // The daemon is under load before the first attempt.
            thread::sleep(Duration::from_secs(1));
            let tries = (0..TRIES).map(|_| handshake(stand));
            tries.collect::<Result<Vec<_>>>()
        })?;
        let mut add = |figure, round, value| {
            run.push(Row::new(FORGED, "peer", figure, round, value).at(rate.into()));
        };
        for (round, seconds) in (0..).zip(seconds) {
            add(UNTIL_HANDSHAKE, round, seconds);
        }
        let kpps = flooded.datagrams as f64 / flooded.seconds / 1e3;
        add(("forged", "kpps"), 0, kpps);
    }
    Ok(())
}

/// Seconds until the left daemon, which has no session at first, gets an answer through the tunnel.
fn handshake(stand: &mut Stand) -> Result<f64> {
    let left = &stand.bed.tunnel.left;
    // Configuring the peer again ends its session.
    left.daemon.configure(&left.config)?;
    let began = Instant::now();
    match stand.bed.wait_until_up() {
        Ok(()) | Err(LabError::NoPassage { .. }) => Ok(began.elapsed().as_secs_f64()),
        Err(error) => Err(error.into()),
    }
}
