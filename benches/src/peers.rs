//! `make bench-peers`: compares Convoy with other programs on one machine, in interleaved rounds.
//!
//! Each round measures every contender once, with fresh daemons, in an order that rotates from round to round.
//! Ratios are taken within a round.

mod rootless;
mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, ensure};
use convoy_lab::wireguard::TunnelOptions;

use crate::comparison::{Record, Turn};
use crate::origin::Origin;
use crate::programs::first_line;
use crate::results;
use crate::rounds::{Progress, rotated};
use crate::tunnel::contender;
use crate::tunnel::rows::Set;
use crate::tunnel::{Contender, Kind, Outcome, Row, Stand, rows};

/// The result files of all sets.
pub(crate) const FILE: &str = "peers.json";
pub(crate) const ROOTLESS_FILE: &str = "rootless.json";
pub(crate) const GATEWAYS_FILE: &str = "gateway.json";

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
    /// One round with a second per TCP run: only checks that everything works
    #[arg(long)]
    quick: bool,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 6)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    reps: u32,
    /// Seconds per TCP run
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: u64,
    /// Only these rows
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these contenders and the first; `NAME+q` is NAME with Convoy's txqueuelen on its interface
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    contenders: Vec<String>,
    /// File for all values [default: benches/results/peers.json, rootless.json or gateway.json; none for a part of the
    /// rows or contenders, or for fewer than six rounds]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The Convoy program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// Directory of the other programs, filled by `make peers`
    #[arg(long, value_name = "DIR", default_value = "target/peers/bin")]
    peers: PathBuf,
}

impl Args {
    fn set(&self) -> Set {
        match (self.rootless, self.gateway) {
            (true, _) => Set::Rootless,
            (_, true) => Set::Gateways,
            _ => Set::Programs,
        }
    }
}

/// Runs the comparison and prints the tables.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let rows = match &args.only[..] {
        [] => args.set().rows(),
        names => rows::named(names)?,
    };
    let record = measure(args, &rows)?;
    let is_whole = args.only.is_empty() && args.contenders.is_empty() && record.rounds >= 6;
    let file = match args.set() {
        Set::Programs => FILE,
        Set::Rootless => ROOTLESS_FILE,
        Set::Gateways => GATEWAYS_FILE,
    };
    results::keep(&record, args.json.as_deref(), file, is_whole)
}

fn measure(args: &Args, rows: &[&Row]) -> anyhow::Result<Record> {
    ensure!(nix::unistd::geteuid().is_root(), "tunnels need root");
    let asked = chosen(args)?;
    let (reps, secs) = if args.quick {
        (1, 1)
    } else {
        (args.reps, args.secs)
    };
    let window = Duration::from_secs(secs);
    let mut stand = Stand::new(&asked[0], window, &TunnelOptions::default())?.of(args.set())?;
    let (contenders, absent) = present(asked, &mut stand);
    let iperf3 = match args.set() {
        Set::Programs => first_line(Command::new("iperf3").arg("--version")).ok(),
        Set::Rootless | Set::Gateways => None,
    };
    let described = contenders.iter().cloned().map(Contender::with_version);
    let mut record = Record {
        origin: Origin::of_this_run(iperf3.into_iter().collect()),
        absent,
        set: args.set(),
        ..Record::new(described.collect(), rows, reps, window)
    };
    let bare = [(0, &Contender::bare())];
    let bare = &bare[usize::from(args.set() != Set::Programs)..];
    let mut progress = Progress::of(contenders.len() * reps as usize + bare.len());
    let rounds = (0..reps).flat_map(|round| {
        let contenders = rotated(&contenders, round).into_iter();
        contenders.map(move |contender| (round, contender))
    });
    for (round, contender) in bare.iter().copied().chain(rounds) {
        let outcome = turn(&mut stand, contender, rows);
        progress.step(&format!("{}: {}", contender.name, outcome.summary(rows)));
        record.turns.push(Turn {
            round,
            contender: contender.name.clone(),
            outcome,
        });
    }
    Ok(record)
}

/// Runs all tests of one contender.
fn turn(stand: &mut Stand, contender: &Contender, rows: &[&Row]) -> Outcome {
    let mut outcome = Outcome::default();
    let measured = stand.start(contender).and_then(|()| {
        let mut tests = rows::tests_of(rows).into_iter();
        tests.try_for_each(|test| outcome.measure(stand, test, rows))
    });
    if let Err(error) = measured {
        outcome.failures.push(format!("{error:#}"));
    }
    outcome
}

/// The requested contenders, and the one that begins the set.
fn chosen(args: &Args) -> anyhow::Result<Vec<Contender>> {
    let mut all = match args.set() {
        Set::Programs => contender::all(&args.convoy, &args.peers),
        Set::Rootless => contender::rootless(&args.convoy, &args.peers),
        Set::Gateways => contender::gateways(&args.convoy),
    };
    let names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
    if let Some(stranger) = args.contenders.iter().find(|name| !names.contains(name)) {
        bail!("no contender is called {stranger}: {}", names.join(", "));
    }
    let (all_asked, first) = (args.contenders.is_empty(), names[0].clone());
    all.retain(|one| all_asked || one.name == first || args.contenders.contains(&one.name));
    for one in &all {
        let is_there = one.kind != Kind::WireGuard || one.program.is_file();
        ensure!(
            is_there,
            "{} is not there (fix: make build peers)",
            one.program.display()
        );
    }
    Ok(all)
}

/// The contenders that can take part here, and the reasons why the others cannot.
fn present(asked: Vec<Contender>, stand: &mut Stand) -> (Vec<Contender>, BTreeMap<String, String>) {
    let mut absent = BTreeMap::new();
    let mut contenders = Vec::new();
    for one in asked {
        let why = match one.kind {
            Kind::Bare | Kind::WireGuard => None,
            _ => stand.absence(&one),
        };
        if let Some(why) = why {
            eprintln!("NOT MEASURED: {}: {why}", one.name);
            absent.insert(one.name, why);
        } else {
            contenders.push(one);
        }
    }
    (contenders, absent)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn convoy_takes_part_in_any_choice_and_a_stranger_is_refused() {
        let mut args = Program::parse_from(["peers", "--contenders", "openvpn"]).args;
        args.convoy = std::env::current_exe().unwrap();
        let names = chosen(&args).unwrap().into_iter().map(|one| one.name);
        assert_eq!(names.collect::<Vec<_>>(), ["convoy", "openvpn"]);
        for (name, refusal) in [
            ("gotatun+q", "gotatun is not there"),
            ("nobody", "boringtun+q"),
        ] {
            args.contenders = vec![name.to_owned()];
            let refused = chosen(&args).unwrap_err().to_string();
            assert!(refused.contains(refusal), "{refused}");
        }
    }
}
