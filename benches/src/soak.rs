//! `make soak`: minutes or days of load, with a change every twenty seconds, sampled every second.
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
//! Each spoke has one TCP connection with the hub inside the tunnel, which carries data both ways and compares every
//! byte with the one sent; and a probe every 10 ms that the hub echoes. The streams of spokes 2 and 4 use IPv4
//! inside, those of 3 and 5 IPv6. Every minute the hub's port changes, a spoke's cable is unplugged for two seconds,
//! and `wg syncconf` removes a peer from the hub and restores it; the protocol renews sessions every two minutes.

mod events;
mod hub;
mod record;
mod samples;
mod streams;
mod verdict;

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{anyhow, ensure};

use crate::origin::{Origin, first_line_of};
use crate::results;
use hub::{Hub, SPOKES};
pub(crate) use record::Record;
use samples::Seen;
use streams::{Load, Sockets};

/// The result file.
pub(crate) const FILE: &str = "soak.json";

/// Load, rekeys and changes on a hub with four spokes; verdicts, a result file and a plot
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long the load lasts, in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    secs: u64,
    /// Mbit/s of each of the eight streams; 0: as fast as TCP goes
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// The program under test
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    program: PathBuf,
    /// Where soak.json and soak.svg are put
    #[arg(long, default_value = results::DIRECTORY)]
    out: PathBuf,
}

/// Measures, judges, draws and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut record = measure(args)?;
    record.verdicts = verdict::judge(&record);
    results::keep(&record, Some(&args.out.join(FILE)), FILE, true)?;
    let failed = record.verdicts.iter().filter(|verdict| !verdict.passed);
    let failed = failed.count();
    ensure!(failed == 0, "{failed} verdicts failed");
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Record> {
    let (program, secs) = (&args.program, args.secs);
    let path = program.display();
    ensure!(program.is_file(), "{path} is not there (fix: make build)");
    let versions = [
        first_line_of(Command::new(program).arg("--version"))?,
        first_line_of(Command::new("wg").arg("--version"))?,
    ];
    let hub = Hub::start(program)?;
    let origin = Origin::of_this_run(versions.into());
    let daemons = hub.daemons().map(|end| end.namespace.label().to_owned());
    let connections = (0..SPOKES.len()).map(|number| streams::open(&hub, number));
    let connections: Vec<[Sockets; 2]> = connections.collect::<Result<_, _>>()?;
    let probers = hub.spokes.iter().map(|spoke| samples::probers(&hub, spoke));
    let mut probers = probers.collect::<Result<Vec<_>, _>>()?;
    let load = &Load::new(args.rate);
    let panicked = |_| anyhow!("a thread of the load panicked");
    thread::scope(|scope| {
        let streams = connections.as_flattened().iter().enumerate();
        let streams = streams.map(|(number, ends)| scope.spawn(move || load.carry(number, ends)));
        let streams: Vec<_> = streams.collect();
        let to = hub.hub.inner_v4();
        let probes = probers.iter_mut();
        let probes = probes.map(|ends| scope.spawn(move || samples::probe(ends, to, load)));
        let probes: Vec<_> = probes.collect();
        let events = scope.spawn(|| events::carry_out(&hub, load, secs));
        let Seen {
            mut samples,
            handshakes,
            death,
        } = samples::watch(&hub, load, secs);
        load.end();
        let probes = probes.into_iter().map(|thread| thread.join());
        let probes = probes.collect::<Result<Vec<_>, _>>().map_err(panicked)?;
        samples::add_round_trips(&mut samples, &probes.concat());
        let streams = streams.into_iter().map(|thread| thread.join());
        Ok(Record {
            origin,
            secs,
            rate_mbps: args.rate,
            daemons: daemons.collect(),
            verdicts: Vec::new(),
            events: events.join().map_err(panicked)?,
            streams: streams.collect::<Result<_, _>>().map_err(panicked)?,
            handshakes,
            death,
            samples,
        })
    })
}
