//! `make bench-compare`: compares two builds of Convoy by stage times, instruction counts and whole tunnels.
//!
//! 1. [`tree`]: builds both commits, the other one in a worktree of its own below `target/compare`.
//! 2. [`stages`]: runs every stage bench in interleaved rounds, the base twice to measure the noise.
//! 3. [`instructions`]: counts the instructions of each stage, which noise does not affect.
//! 4. [`tunnel`]: measures the scenes of [`crate::tunnel`] with the daemon of each tree, or with two programs.
//! 5. [`change`]: tells changes from noise.
//!
//! Without a base, it measures the stages of this tree and their noise.

mod change;
mod instructions;
mod stages;
mod tree;
mod tunnel;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_rows::row::Run;
use convoy_rows::section::Section;

use crate::tunnel::{Contender, scenes};
use change::SIDES;
use stages::Effort;
use tree::Tree;

const SECTION: Section = Section {
    title: "Stages",
    command: "bench-stages",
    file: "stages.jsonl",
    tables: &[],
    plots: &[],
    legend: change::LEGEND,
};
const COMPARISON: Section = Section {
    title: "Since another commit",
    command: "bench-compare BASE=REF",
    file: "compare.jsonl",
    ..SECTION
};

/// Compares this tree with another commit, or two programs with each other
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The commit to compare with; without one, only the stages of this tree are measured
    #[arg(long, value_name = "REF")]
    base: Option<String>,
    /// Compare this program
    #[arg(long, value_name = "PROGRAM", requires = "b", conflicts_with = "base")]
    a: Option<PathBuf>,
    /// with this one, as tunnels
    #[arg(long, value_name = "PROGRAM", requires = "a")]
    b: Option<PathBuf>,
    /// Measure the first program a second time to show the noise
    #[arg(long, requires = "a")]
    noise: bool,
    /// Only stages whose names match
    #[arg(long, value_name = "REGEX")]
    filter: Option<String>,
    /// Only these rows of the tunnel
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds, each with every stage and row of both sides
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of a TCP run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: u64,
    /// At most this many seconds per stage and round, without preparation
    #[arg(long, default_value_t = 0.1)]
    stage_secs: f64,
    /// Two rounds and 10 ms per stage: only checks that everything works
    #[arg(long, conflicts_with_all = ["rounds", "secs", "stage_secs"])]
    quick: bool,
    /// Do not count instructions (needs valgrind)
    #[arg(long)]
    no_count: bool,
    /// Do not measure the tunnel (needs root)
    #[arg(long)]
    no_tunnel: bool,
    /// File for all values [default: benches/results/stages.jsonl, or compare.jsonl with a base; none for
    /// programs, or with --quick, --filter or --only]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the comparison and prints the result.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        let count = if args.noise { 3 } else { 2 };
        let mut run = Run::new(Vec::new());
        let names = ["a", "b", "a again"];
        tunnels(args, &[a, b, a][..count], &names, &mut run)?;
        println!("{}", tunnel::table(&run, &names));
        return args.json.as_ref().map_or(Ok(()), |file| run.save(file));
    }
    let wants_tunnel = args.base.is_some() && !args.no_tunnel;
    let mut run = Run::new(vec![tree::compiler()?]);
    let head = Tree::here(wants_tunnel)?;
    let base = args
        .base
        .as_ref()
        .map(|reference| Tree::of(reference, wants_tunnel));
    let base = base.transpose()?;
    let effort = Effort {
        rounds: args.rounds(),
        secs: if args.quick { 0.01 } else { args.stage_secs },
        filter: args.filter.clone(),
    };
    stages::measure(&head, base.as_ref(), &effort, &mut run)?;
    if !args.no_count {
        instructions::count(&head, base.as_ref(), &mut run)?;
    }
    println!("{}", change::table(&run, base.is_some()));
    if let Some(base) = &base {
        run.origin.notes.push(format!("Against {}.", base.commit));
        if wants_tunnel {
            let daemons = [&base.convoy, &head.convoy, &base.convoy];
            tunnels(args, &daemons, &SIDES, &mut run)?;
            println!("{}", tunnel::table(&run, &SIDES));
        }
    }
    let section = if base.is_some() {
        &COMPARISON
    } else {
        &SECTION
    };
    let is_whole = !args.quick && args.filter.is_none() && args.only.is_empty();
    section.keep(&run, args.json.as_deref(), is_whole)
}

fn tunnels(
    args: &Args,
    programs: &[impl AsRef<Path>],
    names: &[&str],
    run: &mut Run,
) -> anyhow::Result<()> {
    let mut contenders = Vec::new();
    for (program, name) in programs.iter().zip(names) {
        let program = program.as_ref();
        ensure!(program.is_file(), "{} is not there", program.display());
        let program = std::path::absolute(program).context("find the program")?;
        contenders.push(Contender::wireguard(name, &program));
    }
    let scenes = match &args.only[..] {
        [] => scenes::of_commits(),
        names => scenes::named(names)?,
    };
    let secs = if args.quick { 1 } else { args.secs };
    tunnel::measure(
        &contenders,
        &scenes,
        args.rounds(),
        Duration::from_secs(secs),
        run,
    )
}

impl Args {
    fn rounds(&self) -> u32 {
        if self.quick { 2 } else { self.rounds }
    }
}
