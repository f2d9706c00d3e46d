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
//! Each spoke has one TCP connection with the hub, inside the tunnel, that carries data both ways, every byte of
//! which is compared with the one sent; and a probe every 10 ms that the hub echoes. The streams of spokes 2 and 4
//! use IPv4 inside, those of 3 and 5 IPv6. Every minute the hub's port changes, a spoke's cable is out for two
//! seconds, and `wg syncconf` takes a peer from the hub and gives it back; sessions are renewed every two minutes
//! by the protocol.

mod bed;
mod events;
mod flow;
mod pattern;
pub(crate) mod record;
mod samples;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, anyhow, ensure};

use crate::origin::{Origin, first_line_of};
use crate::{plot, results};
use bed::{Bed, SPOKES};
use flow::{Connection, Load, Transfer};
use record::{Header, Record};
use samples::{Probers, Probes, Seen};

/// The result file, and its plot.
pub(crate) const FILE: &str = "soak.json";
pub(crate) const PLOT: &str = "soak.svg";

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
    /// Only judge and draw the soak.json that is there
    #[arg(long)]
    again: bool,
}

/// Measures, judges, draws and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let file = args.out.join(FILE);
    let mut record = match args.again {
        true => results::load(&file)?.context("there is no soak.json")?,
        false => measure(&args.program, args.secs, args.rate)?,
    };
    record.verdicts = verdict::judge(&record);
    results::save(&record, &file)?;
    results::save_bytes(
        plot::svg(&record.figure())?.as_bytes(),
        &args.out.join(PLOT),
    )?;
    for verdict in &record.verdicts {
        println!("{verdict}");
    }
    let failed = record
        .verdicts
        .iter()
        .filter(|verdict| !verdict.passed)
        .count();
    ensure!(failed == 0, "{failed} verdicts failed");
    Ok(())
}

fn measure(program: &Path, secs: u64, rate_mbps: f64) -> anyhow::Result<Record> {
    ensure!(
        program.is_file(),
        "{} is not there (fix: make build)",
        program.display()
    );
    let versions = [
        first_line_of(Command::new(program).arg("--version"))?,
        first_line_of(Command::new("wg").arg("--version"))?,
    ];
    let bed = Bed::new(program)?;
    let header = Header {
        origin: Origin::of_this_run(versions.into()),
        secs,
        rate_mbps,
        daemons: bed
            .ends()
            .map(|end| end.namespace.label().to_owned())
            .collect(),
    };
    let open = |(number, spoke)| Connection::open(&bed, number, spoke);
    let connections = SPOKES.into_iter().enumerate().map(open);
    let connections: Vec<_> = connections.collect::<Result<_, _>>()?;
    let mut probers = Probers::start(&bed)?;
    let load = Load::new(rate_mbps);
    let probes = Probes::default();
    thread::scope(|scope| {
        // Ends the threads also when this one fails.
        let end = EndOnDrop(&load);
        let transfers: Vec<_> = connections
            .iter()
            .flat_map(|one| load.start(scope, one))
            .collect();
        let (load, probes) = (&load, &probes);
        for (agent, to) in probers.each() {
            scope.spawn(move || probes.run(agent, to, load));
        }
        let events = scope.spawn(|| events::carry_out(&bed, load, secs));
        let Seen {
            samples,
            handshakes,
            death,
        } = samples::watch(&bed, load, probes, secs)?;
        drop(end);
        let streams = transfers.into_iter().map(Transfer::finish);
        Ok(Record {
            header,
            verdicts: Vec::new(),
            streams: streams.collect::<Result<_, _>>()?,
            events: events
                .join()
                .map_err(|_| anyhow!("the events' thread panicked"))?,
            handshakes,
            death,
            samples,
        })
    })
}

struct EndOnDrop<'a>(&'a Load);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
