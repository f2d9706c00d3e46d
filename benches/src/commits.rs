//! Two builds of Convoy side by side: stage by stage, by instructions, and as whole tunnels.

mod tunnel;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::results;
use crate::tunnel::Contender;

/// Compares two programs, row by row, in interleaved rounds.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The first program
    #[arg(long, value_name = "PROGRAM")]
    a: PathBuf,
    /// The second program
    #[arg(long, value_name = "PROGRAM")]
    b: PathBuf,
    /// Measure the first program a second time, for the noise
    #[arg(long)]
    noise: bool,
    /// Only these rows
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds, each with every row of both sides
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of a TCP run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: u64,
    /// Where every value is written to
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let rows = tunnel::rows_named(&args.only)?;
    let mut contenders = Vec::new();
    let again = args.noise.then_some(("a again", &args.a));
    for (name, program) in [("a", &args.a), ("b", &args.b)].into_iter().chain(again) {
        ensure!(program.is_file(), "{} is not there", program.display());
        let program = std::path::absolute(program).context("find the program")?;
        contenders.push(Contender::wireguard(name, &program).with_version());
    }
    let window = Duration::from_secs(args.secs);
    let record = tunnel::measure(contenders, &rows, args.rounds, window)?;
    println!("{}", tunnel::markdown(&record));
    if let Some(file) = &args.json {
        results::save(&record, file)?;
    }
    Ok(())
}
