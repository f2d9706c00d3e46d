//! `make bench-compare`: compares two builds of Convoy by stage times, instruction counts and whole tunnels.
//!
//! 1. [`tree`]: builds both commits, the other one in a worktree of its own below `target/compare`.
//! 2. [`stages`]: runs every stage bench in interleaved rounds, the base twice to measure the noise, and counts
//!    instructions, which noise does not affect.
//! 3. [`change`]: tells changes from noise.
//! 4. As root, measures the scenes of [`crate::tunnel`] with the daemon of each tree, or with two programs.
//!
//! Without a base, it measures the stages of this tree and their noise.

mod change;
mod stages;
mod tree;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use convoy_rows::ratio;
use convoy_rows::row::{Run, properties};
use convoy_rows::section::Section;
use convoy_rows::table::{self, cell, spread};
use itertools::Itertools as _;

use crate::programs::{self, first_line};
use crate::rounds::{perform, rotated};
use crate::tunnel::{Contender, Scene, Set, Stand, scenes};
use change::SIDES;
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

const RATIOS: &str = "
Medians over the rounds, with the lowest and highest value in brackets. Ratios are taken within each round; the
brackets hold the 95 % interval (from six rounds on), or else the lowest and highest ratio.
";

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
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of a TCP run
    #[arg(long, default_value_t = 3, default_value_if("quick", "true", "1"))]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: u64,
    /// At most this many seconds per stage and round, without preparation
    #[arg(long, default_value_t = 0.1, default_value_if("quick", "true", "0.01"))]
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

pub(crate) fn run(args: &Args) -> Result<()> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        let count = if args.noise { 3 } else { 2 };
        let mut run = Run::new(Vec::new());
        tunnels(args, &[a, b, a][..count], &["a", "b", "a again"], &mut run)?;
        return args.json.as_ref().map_or(Ok(()), |file| run.save(file));
    }
    let wants_tunnel = args.base.is_some() && !args.no_tunnel;
    let compiler = first_line(Command::new("rustc").arg("--version"))?;
    let mut run = Run::new(vec![compiler]);
    let head = Tree::here(wants_tunnel)?;
    let base = args.base.as_ref().map(|base| Tree::of(base, wants_tunnel));
    let base = base.transpose()?;
    let mut options = vec!["--max-time".to_owned(), args.stage_secs.to_string()];
    options.extend(args.filter.clone());
    stages::measure(&head, base.as_ref(), args.rounds, &options, &mut run)?;
    if !args.no_count {
        stages::count_instructions(&head, base.as_ref(), &mut run)?;
    }
    println!("{}", change::table(&run, base.is_some()));
    if let Some(base) = &base {
        run.origin.notes.push(format!("Against {}.", base.commit));
        if wants_tunnel {
            let daemons = [&base.convoy, &head.convoy, &base.convoy];
            tunnels(args, &daemons, &SIDES, &mut run)?;
        }
    }
    let section = base.map_or(&SECTION, |_| &COMPARISON);
    let is_whole = !args.quick && args.filter.is_none() && args.only.is_empty();
    section.keep(&run, args.json.as_deref(), is_whole)
}

/// Measures tunnels of two or more programs, and prints their table. The daemons of all programs run at the same time;
/// each test runs on one program after another before the next test begins.
fn tunnels(args: &Args, programs: &[&PathBuf], names: &[&str], run: &mut Run) -> Result<()> {
    programs::ensure_root()?;
    let scenes = Set::Commits.scenes(&args.only)?;
    let window = Duration::from_secs(args.secs);
    let mut stands = Vec::new();
    for (program, name) in programs.iter().zip(names) {
        ensure!(program.is_file(), "{} is not there", program.display());
        let program = std::path::absolute(program).context("find the program")?;
        let contender = Contender::wireguard(name, &program);
        stands.push(Stand::new(&contender, Set::Programs, window)?);
    }
    let groups = scenes::by_test(&scenes);
    let steps = (0..args.rounds).cartesian_product(0..groups.len());
    perform(steps.collect(), |(round, group)| {
        if group == 0 {
            stands.iter_mut().try_for_each(Stand::restart)?;
        }
        let before = run.rows.len();
        for stand in rotated(&mut stands, round) {
            stand.measure(&groups[group], round, run)?;
        }
        let rows = run.rows[before..].iter();
        let mut figures = rows.map(|it| format!("{} {} {:.2}", it.contender, it.scene, it.value));
        Ok(format!("round {}: {}", round + 1, figures.join(", ")))
    })?;
    println!("{}", table(run, names));
    Ok(())
}

/// One line per scene, with the ratio of each other contender to the first.
fn table(run: &Run, names: &[&str]) -> String {
    let is_there = |name: &&str| run.rows.iter().any(|row| row.contender == **name);
    let names: Vec<_> = names.iter().copied().filter(is_there).collect();
    let Some((first, others)) = names.split_first() else {
        return String::new();
    };
    let ratios = others.iter().map(|other| format!(" | {other} ÷ {first}"));
    let head: String = format!(" | {}", names.join(" | ")) + &ratios.collect::<String>();
    let line = |scene: &Scene| {
        let (name, (figure, unit)) = (scene.name, scene.figure);
        run.sample(name, first, scene.figure)?;
        let figure_of = |one: &&str| {
            let sample = run.sample(name, one, scene.figure);
            cell(sample.map(|it| spread(&it, properties(unit).0)))
        };
        let ratio_of = |other: &&str| {
            let sample = run.ratio(name, [other, first], scene.figure);
            cell(sample.as_ref().map(ratio::text))
        };
        let mut cells = vec![format!("{figure}, {unit}")];
        cells.extend(names.iter().map(figure_of));
        cells.extend(others.iter().map(ratio_of));
        Some(cells)
    };
    let table = table::markdown(&head, scenes::SCENES.iter().filter_map(line));
    format!("{table}{RATIOS}{}", run.origin.notes.join("\n"))
}
