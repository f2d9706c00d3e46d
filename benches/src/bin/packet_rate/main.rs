//! How many datagrams a second one machine can send: `make packet-rate`.
//!
//! ```text
//!   loopback                          veth
//!   ┌──── one ────┐                   ┌── left ──┐          ┌── right ──┐
//!   │ senders     │                   │ senders ─┼─ veth0 ──┼─ sink     │
//!   │   └─ lo ─ sink                  └──────────┘          └───────────┘
//!   └─────────────┘
//! ```
//!
//! Each sender is a thread with a socket of its own that sends as fast as it can, one datagram a call
//! (`send_to`), 64 (`sendmmsg`), or as many as one call may carry cut by the kernel (`UDP_SEGMENT`).
//!
//! 1. [`plan`]: which points are measured. [`point`]: what a point is.
//! 2. [`place`]: the sockets at both ends, in namespaces that die with this program.
//! 3. [`run`]: the senders of one point, and the [`sink`].
//! 4. [`record`], [`picture`]: what is written.

mod picture;
mod place;
mod plan;
mod point;
mod record;
mod run;
mod sender;
mod sink;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use convoy_benches::{origin::Origin, plot, results};
use convoy_lab::measure::Host;

use place::Places;
use plan::Plan;
use record::Record;

/// Sends datagrams as fast as this machine can, and writes rates, bandwidths and plots.
#[derive(Debug, Parser)]
struct Args {
    /// Four sizes, a tenth of a second each: shows that all works
    #[arg(long)]
    quick: bool,
    /// Where `packet_rate.json`, `.csv` and the plots are put; with --quick they are only if this is given
    #[arg(long, default_value = results::DIRECTORY)]
    out: PathBuf,
    /// Only draw again the `packet_rate.json` that is there
    #[arg(long)]
    draw: bool,
}

fn main() -> ExitCode {
    match study(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("packet_rate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn study(args: &Args) -> anyhow::Result<()> {
    let file = args.out.join("packet_rate.json");
    if args.draw {
        return draw(&results::load(&file)?, &args.out);
    }
    let record = measure(args)?;
    print!("{}", record.summary());
    // A trial is no result to keep.
    if args.quick && args.out == Path::new(results::DIRECTORY) {
        return Ok(());
    }
    results::save(&record, &file)?;
    results::save_text(&record.csv(), &file.with_extension("csv"))?;
    draw(&record, &args.out)?;
    eprintln!("all of it: {}", file.display());
    Ok(())
}

fn draw(record: &Record, out: &Path) -> anyhow::Result<()> {
    for (name, figure) in picture::all(record) {
        results::save_text(&plot::svg(&figure)?, &out.join(name))?;
    }
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Record> {
    let origin = Origin::of_this_run(vec![format!("packet_rate {}", env!("CARGO_PKG_VERSION"))]);
    let plan = if args.quick {
        Plan::quick()
    } else {
        Plan::full(Host::of_this_machine().cpus)
    };
    let places = Places::make()?;
    let points = plan.points(&places.kinds());
    let planned = plan.seconds(points.len());
    eprintln!("{} points, about {planned:.0} s", points.len());
    let series = run::all(&plan, &points, &places);
    Ok(Record {
        origin,
        window_ms: plan.window.as_millis() as u64,
        series,
    })
}
