//! `make growth`: how the cost of a tunnel grows with the size of packets, with flows, peers and the MTU.
//!
//! The speed test measures every point, as a process: between two namespaces, with two daemons. What has
//! the same tunnel is measured by one process, whose tests run one after the other. A round runs every
//! process once, from another one on each time; figures are medians over the rounds.
//!
//! 1. [`plan`]: which tests run in which tunnels.
//! 2. [`run`]: the rounds.
//! 3. [`convoy_benches::growth`]: what is written, and the tables; [`picture`]: the plots.

mod picture;
mod plan;
mod run;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::Parser;
use convoy_benches::{
    growth::{Axis, FILE, LEGEND, Record},
    origin::{Origin, first_line_of},
    plot, results,
};

use plan::Plan;

/// Measures how the cost of a tunnel grows, and writes every value and a plot for each thing it grows with.
#[derive(Debug, Parser)]
struct Args {
    /// The program that is measured
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/convoy")]
    convoy: PathBuf,
    /// Rounds, each with every point
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A few points, one round: shows that all works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Where `growth.json` and the plots are put; with --quick they are only if this is given
    #[arg(long, value_name = "DIR", default_value = results::DIRECTORY)]
    out: PathBuf,
    /// Only show and draw again the `growth.json` that is there
    #[arg(long, conflicts_with_all = ["quick", "rounds"])]
    again: bool,
}

fn main() -> ExitCode {
    match study(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("growth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn study(args: &Args) -> anyhow::Result<()> {
    let file = args.out.join(FILE);
    let record = if args.again {
        results::load(&file)?
    } else {
        measure(args)?
    };
    for axis in Axis::ALL {
        println!("{}\n\n{}", axis.title(), record.table(axis));
    }
    println!("{LEGEND}");
    // A trial is no result to keep.
    if args.quick && args.out == Path::new(results::DIRECTORY) {
        return Ok(());
    }
    results::save(&record, &file)?;
    for axis in Axis::ALL {
        let figure = picture::of(&record, axis);
        results::save_text(&plot::svg(&figure)?, &args.out.join(axis.plot()))?;
    }
    eprintln!("every single value: {}", file.display());
    Ok(())
}

fn measure(args: &Args) -> anyhow::Result<Record> {
    let version = first_line_of(Command::new(&args.convoy).arg("--version"))?;
    let origin = Origin::of_this_run(vec![version]);
    let plan = if args.quick {
        Plan::quick()
    } else {
        Plan::full(args.rounds)
    };
    eprintln!("about {} s", plan.planned().as_secs());
    Ok(Record {
        origin,
        rounds: plan.rounds,
        secs: plan.secs,
        series: run::all(&args.convoy, &plan)?,
    })
}
