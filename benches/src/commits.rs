//! `make bench-compare`: compares two builds of Convoy by stage times, instruction counts and whole tunnels.
//!
//! 1. [`tree`]: builds both commits, the other one in a worktree of its own below `target/compare`.
//! 2. [`stages`]: runs every stage bench in interleaved rounds, the base twice to measure the noise.
//! 3. [`instructions`]: counts the instructions of each stage, which noise does not affect.
//! 4. [`tunnel`]: measures the rows of [`crate::tunnel`] with the daemon of each tree, or with two programs.
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
use serde::{Deserialize, Serialize};

use crate::comparison;
use crate::origin::Origin;
use crate::results;
use crate::tunnel::Contender;
use change::Row;
use tree::Tree;

/// The result files of a comparison and of this tree alone.
pub(crate) const FILE: &str = "compare.json";
pub(crate) const STAGES_FILE: &str = "stages.json";
/// The names of the two sides, and of the base measured a second time.
const SIDES: [&str; 3] = ["base", "head", "base again"];

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
    /// File for all values [default: benches/results/stages.json, or compare.json with a base; none for
    /// programs, or with --quick, --filter or --only]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    origin: Origin,
    /// The commit that this tree is compared with.
    base: Option<String>,
    rounds: u32,
    /// Stages.
    rows: Vec<Row>,
    #[serde(default)]
    tunnel: Option<comparison::Record>,
}

/// Runs the comparison and prints the result.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        return programs(args, a, b);
    }
    let wants_tunnel = args.base.is_some() && !args.no_tunnel;
    let origin = Origin::of_this_run(vec![tree::compiler()?]);
    let head = Tree::here(wants_tunnel)?;
    let base = args
        .base
        .as_ref()
        .map(|reference| Tree::of(reference, wants_tunnel));
    let base = base.transpose()?;
    let mut rows = stages::measure(&head, base.as_ref(), args)?;
    if !args.no_count {
        instructions::count(&head, base.as_ref(), &mut rows)?;
    }
    let daemons = base.as_ref().filter(|_| wants_tunnel);
    let daemons = daemons.map(|base| [&base.convoy, &head.convoy, &base.convoy]);
    let tunnel = daemons.map(|daemons| tunnels(args, &daemons, &SIDES));
    let record = Record {
        origin,
        base: base.map(|base| base.commit),
        rounds: args.rounds(),
        rows,
        tunnel: tunnel.transpose()?,
    };
    let name = if record.base.is_some() {
        FILE
    } else {
        STAGES_FILE
    };
    let is_whole = !args.quick && args.filter.is_none() && args.only.is_empty();
    results::keep(&record, args.json.as_deref(), name, is_whole)
}

fn programs(args: &Args, a: &Path, b: &Path) -> anyhow::Result<()> {
    let count = if args.noise { 3 } else { 2 };
    let record = tunnels(args, &[a, b, a][..count], &["a", "b", "a again"])?;
    println!("{}", tunnel::markdown(&record));
    args.json
        .as_ref()
        .map_or(Ok(()), |file| results::save(&record, file))
}

fn tunnels(
    args: &Args,
    programs: &[impl AsRef<Path>],
    names: &[&str],
) -> anyhow::Result<comparison::Record> {
    let mut contenders = Vec::new();
    for (program, name) in programs.iter().zip(names) {
        let program = program.as_ref();
        ensure!(program.is_file(), "{} is not there", program.display());
        let program = std::path::absolute(program).context("find the program")?;
        contenders.push(Contender::wireguard(name, &program).with_version());
    }
    let rows = tunnel::rows_named(&args.only)?;
    let secs = if args.quick { 1 } else { args.secs };
    tunnel::measure(contenders, &rows, args.rounds(), Duration::from_secs(secs))
}

impl Args {
    fn rounds(&self) -> u32 {
        if self.quick { 2 } else { self.rounds }
    }
}
