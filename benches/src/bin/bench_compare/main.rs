//! `make bench-compare BASE=REF`: this tree against another commit, measured in turns.
//!
//! 1. [`tree`]: both are built, the other one in a worktree of its own below `target/compare`.
//! 2. [`stages`], [`divan`]: every stage bench in turns; first the base against itself, for the noise.
//! 3. [`instructions`]: how many instructions a stage takes, which noise does not touch.
//! 4. [`tunnel`]: the whole tunnel, by the speed test of this tree, with each tree's daemon.
//! 5. [`compare`]: what is a change, and what is noise; [`table`]: what is printed.
//!
//! Without a base only the first half of 2, and 3: what each stage takes, and how sure that is.

mod compare;
mod divan;
mod instructions;
mod stages;
mod table;
mod tree;
mod tunnel;
mod turns;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use convoy_benches::{origin::Origin, results};

use compare::Report;
use stages::Turns;
use tree::Tree;

/// Compares this tree with another commit: stages, instructions, and the whole tunnel.
#[derive(Debug, Parser)]
struct Args {
    /// The commit to compare with; without, only this tree is measured
    #[arg(long, value_name = "REF")]
    base: Option<String>,
    /// Only stages whose name matches
    #[arg(long, value_name = "REGEX")]
    filter: Option<String>,
    /// Rounds, each with every stage of both sides
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// At most so long for a stage, in seconds, not counting its preparation
    #[arg(long, default_value_t = 0.1)]
    secs: f64,
    /// Two rounds, and a hundredth of a second a stage: shows that all works
    #[arg(long, conflicts_with_all = ["rounds", "secs"])]
    quick: bool,
    /// Do not count instructions (by valgrind, where it is installed)
    #[arg(long)]
    no_count: bool,
    /// Do not measure the tunnel (as root only)
    #[arg(long)]
    no_tunnel: bool,
    /// Where every value is written to [default: benches/results/stages.json, compare.json with a base;
    /// nowhere with --quick or --filter]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let wants_tunnel = args.base.is_some() && !args.no_tunnel;
    let origin = Origin::of_this_run(vec![tree::compiler()?]);
    let head = Tree::here(wants_tunnel)?;
    let base = match &args.base {
        Some(reference) => Some(Tree::of(reference, wants_tunnel)?),
        None => None,
    };
    let turns = Turns {
        rounds: if args.quick { 2 } else { args.rounds },
        secs: if args.quick { 0.01 } else { args.secs },
        filter: args.filter.clone(),
    };
    let mut rows = stages::measure(&head, base.as_ref(), &turns)?;
    if !args.no_count {
        instructions::count(&head, base.as_ref(), &mut rows)?;
    }
    if let Some(base) = base.as_ref().filter(|_| wants_tunnel) {
        rows.extend(tunnel::measure(&head, base, turns.rounds)?);
    }
    let report = Report {
        origin,
        base: base.map(|base| base.commit),
        rounds: turns.rounds,
        rows,
    };
    print!("{}", table::markdown(&report));
    let file = args.json.clone().unwrap_or_else(|| {
        let name = if report.base.is_some() {
            "compare"
        } else {
            "stages"
        };
        PathBuf::from(results::DIRECTORY)
            .join(name)
            .with_extension("json")
    });
    // A part of the stages, or a trial, is no result to keep.
    let is_whole = !args.quick && args.filter.is_none();
    if is_whole || args.json.is_some() {
        results::save(&report, &file)?;
        eprintln!("every single value: {}", file.display());
    }
    Ok(())
}
