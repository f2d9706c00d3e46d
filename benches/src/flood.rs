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
mod row;
mod scene;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use convoy_lab::flood::{Datagrams, Flooded, Generator};
use convoy_lab::measure::process;

use crate::origin::Origin;
use crate::programs;
use crate::results;
use crate::rounds::rotated;
use crate::tunnel::Way;
use lockout::Lockout;
use row::{Record, Row, Run};
use scene::{Captured, Scene};

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

/// Runs all floods, prints the results and judges them.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    programs::ensure_built(&args.program)?;
    let kinds = match &args.kinds[..] {
        [] => Kind::value_variants(),
        kinds => kinds,
    };
    let mut scene = Scene::new(&args.program)?;
    let mut record = Record {
        origin: Origin::of_this_run(Vec::new()),
        rounds: args.rounds,
        secs: args.secs,
        rate: args.rate,
        has_silent_ports: scene.has_silent_ports,
        rows: Vec::new(),
        lockouts: Vec::new(),
    };
    let at_receiver = kinds.iter().map(|kind| (*kind, Way::Up));
    let at_sender = kinds.iter().filter(|kind| kind.busies_a_sender());
    for (kind, way) in at_receiver.chain(at_sender.map(|kind| (*kind, Way::Down))) {
        let row = measure(&mut scene, kind, way, args).with_context(|| format!("{kind:?}"))?;
        eprintln!("{}", row.cells().join(" | "));
        record.rows.push(row);
    }
    if args.kinds.is_empty() || args.lockout {
        record.lockouts = Lockout::at_each_rate(&mut scene)?;
    }
    results::keep(&record, args.json.as_deref(), "", false)?;
    match &record.failures()[..] {
        [] => Ok(()),
        failures => bail!("failed:\n{}", failures.join("\n")),
    }
}

fn measure(scene: &mut Scene, kind: Kind, way: Way, args: &Args) -> anyhow::Result<Row> {
    let lines = scene.log_lines();
    let (mut runs, mut resident_kib) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..args.rounds {
        scene.stand.check()?;
        // Captured in every round, since sessions are renewed.
        scene.capture_data()?;
        let datagrams = kind.datagrams(&scene.captured);
        for aim in rotated([Aim::ClosedPort, Aim::Daemon], round) {
            runs[aim as usize].push(one(scene, &datagrams, (aim, way), args)?);
        }
        resident_kib.push(process::usage(scene.right().daemon.pid())?.resident_kib);
    }
    // The daemons have survived, and the tunnel still works.
    scene.stand.check()?;
    scene.stand.bed().wait_until_up()?;
    let log_lines = scene.log_lines() - lines;
    let [closed, open] = runs;
    Ok(Row {
        kind: match way {
            Way::Up => kind.name(),
            _ => kind.name() + ", at the sender",
        },
        brings_cookies: kind.brings_cookies(),
        closed,
        open,
        resident_kib,
        log_lines,
    })
}

/// TCP through the tunnel while a flood is aimed at `aim`.
fn one(
    scene: &mut Scene,
    datagrams: &Datagrams,
    (aim, way): (Aim, Way),
    args: &Args,
) -> anyhow::Result<Run> {
    let before = scene.settled()?;
    let pid = scene.right().daemon.pid();
    let window = Duration::from_secs(args.secs);
    let stand = &scene.stand;
    let generator = match aim {
        Aim::ClosedPort => &mut scene.at_closed_port,
        Aim::Daemon => &mut scene.at_daemon,
    };
    let (transferred, flooded) = beside(generator, datagrams, args.rate, || {
        let before = process::cpu_time(pid)?;
        let received = stand.one_stream(way, window)?.finish()?;
        Ok((received.gbps, process::cpu_time(pid)? - before))
    })?;
    let (gbps, cpu) = transferred;
    Ok(Run {
        gbps,
        kpps: flooded.datagrams as f64 / flooded.seconds / 1e3,
        sent: flooded.datagrams,
        cpu: cpu.as_secs_f64() / window.as_secs_f64(),
        counters: scene.settled()?.since(&before),
    })
}

/// Does `work` while `generator` sends `rate` datagrams per second.
fn beside<T>(
    generator: &mut Generator,
    datagrams: &Datagrams,
    rate: u32,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Flooded)> {
    let end = AtomicBool::new(false);
    let mut flooded = None;
    let done = thread::scope(|scope| {
        scope.spawn(|| flooded = Some(generator.run(datagrams, rate.into(), &end)));
        let done = work();
        end.store(true, Ordering::Relaxed);
        done
    });
    let flooded = flooded.context("the generator did not run")?;
    Ok((done?, flooded.context("send the flood")?))
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

    /// Whether the daemon must ask for cookies: MAC1 is right.
    fn brings_cookies(self) -> bool {
        matches!(self, Self::ReplayedHandshakes | Self::WrongCookies)
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
