//! `make soak`: minutes or days of load, with an event every twenty seconds and a sample every second.
//!
//! ```text
//!        spoke 2 ═════════╗                         ╔═════════ spoke 4
//!        10.8.0.2         ║    hub, under test      ║         10.8.0.4
//!        10.9.2.2 ─ veth ─╫─ 10.9.2.1  10.9.4.1 ────╫─ veth ─ 10.9.4.4
//!                         ╟──────  10.8.0.1  ───────╢
//!        10.9.3.3 ─ veth ─╫─ 10.9.3.1  10.9.5.1 ────╫─ veth ─ 10.9.5.5
//!        fd08::3          ║                         ║          fd08::5
//!        spoke 3 ═════════╝                         ╚═════════ spoke 5
//! ```
//!
//! The streams of spokes 2 and 4 use IPv4 inside the tunnel, those of 3 and 5 IPv6. Load, events and verdicts:
//! `benches/README.md`.

mod events;
mod hub;
mod samples;
mod streams;
mod verdict;

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Result, ensure};
use convoy_rows::origin;
use convoy_rows::plot::{Plot, Scale};
use convoy_rows::row::Run;
use convoy_rows::section::Section;

use crate::agent::ends;
use crate::programs::{self, first_line};
use hub::{Hub, SPOKES};
use samples::Observed;
use streams::{Load, STREAMS, Sockets};

/// Runs load, rekeys and events on a hub with four spokes; writes verdicts, a result file and a plot
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Duration of the load in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    secs: u64,
    /// Mbit/s of each of the eight streams; 0: unlimited
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// The program to test
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    program: PathBuf,
    /// Directory for soak.jsonl and soak.svg
    #[arg(long, default_value = origin::DIRECTORY)]
    out: PathBuf,
}

pub(crate) const SECTION: Section = Section {
    title: "Soak",
    command: "soak",
    file: "soak.jsonl",
    tables: &[],
    plots: &[Plot::new(
        "soak.svg",
        "Convoy soak: hub with 4 spokes, TCP both ways",
        ("time (s)", Scale::Linear),
        &[
            ("TCP goodput", "Mbit/s", Scale::Linear),
            ("round trip", "ms", Scale::Logarithmic),
            ("memory, VmRSS", "MiB", Scale::Linear),
            ("descriptors", "open", Scale::Linear),
            ("drops", "packets/s", Scale::Linear),
        ],
    )],
    legend: "",
};

pub(crate) fn run(args: &Args) -> Result<()> {
    programs::ensure_built(&args.program)?;
    let version = |program| first_line(Command::new(program).arg("--version"));
    let versions = [version(args.program.as_os_str())?, version("wg".as_ref())?];
    let mut run = Run::new(versions.into());
    let observed = observe(args)?;
    let verdicts = verdict::judge(&observed);
    observed.add(&mut run);
    let failed = verdicts.iter().filter(|(_, passed, _)| !passed).count();
    let texts = verdicts.into_iter().map(|(.., text)| text);
    run.origin.notes.extend(texts);
    SECTION.keep(&run, Some(&args.out.join(SECTION.file)), true)?;
    ensure!(failed == 0, "{failed} verdicts failed");
    Ok(())
}

fn observe(args: &Args) -> Result<Observed> {
    let hub = Hub::start(&args.program)?;
    let daemons = hub.daemons().map(|end| end.namespace.label().to_owned());
    let mut observed = Observed {
        began_unix_s: jiff::Timestamp::now().as_second().cast_unsigned(),
        secs: args.secs,
        daemons: daemons.collect(),
        ..Observed::default()
    };
    let connections = (0..SPOKES.len()).map(|number| streams::open(&hub, number));
    let connections: Vec<[Sockets; 2]> = connections.collect::<Result<_, _>>()?;
    let probers = hub.spokes.iter();
    let probers = probers.map(|spoke| ends(&spoke.namespace, &hub.hub.namespace));
    let mut probers = probers.collect::<Result<Vec<_>, _>>()?;
    let mut round_trips = vec![Vec::new(); probers.len()];
    let (mut streams, mut events) = (vec![None; STREAMS], Vec::new());
    let (load, to) = (&Load::new(args.rate), hub.hub.inner_v4());
    thread::scope(|scope| {
        let carried = connections.as_flattened().iter().zip(&mut streams);
        for (number, (ends, stream)) in carried.enumerate() {
            scope.spawn(move || *stream = Some(load.carry(number, ends)));
        }
        for (ends, found) in probers.iter_mut().zip(&mut round_trips) {
            scope.spawn(move || *found = samples::probe(ends, to, load));
        }
        scope.spawn(|| events = events::carry_out(&hub, load, args.secs));
        let watched = samples::watch(&hub, load, &mut observed);
        observed.death = watched.err().map(|error| format!("{error:#}"));
        load.end();
    });
    samples::add_round_trips(&mut observed.samples, &round_trips.concat());
    observed.streams = streams.into_iter().flatten().collect();
    observed.events = events;
    Ok(observed)
}
