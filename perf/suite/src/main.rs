//! `convoy-suite`: builds the workspace's tests and runs them. Test binaries without labs run two at a time, the
//! others one after the other.
//!
//! It prints what a failed test wrote as soon as that test ends, and at the end the slowest tests and every
//! test that was skipped or failed. It reads the JSON that libtest writes, which is not stable: hence
//! `RUSTC_BOOTSTRAP` in the environment of the tests, never in that of the compiler.
//!
//! `make test` and `make test-all` call it. It decides nothing about a test: which tests may run beside each
//! other, each test says itself (`convoy_lab::Turn`).

mod binaries;
mod selection;
mod tally;
mod watch;

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;

use crate::{binaries::Binary, selection::Selection, tally::Tally};

/// Most failed tests of a target that `--again` runs: if more fail, the machine is not to blame.
const MOST_AGAIN: usize = 5;
/// Binaries without labs that run at the same time: most have a long test that keeps one processor busy.
const TOGETHER: usize = 2;

/// Builds tests and runs them.
#[derive(Parser)]
struct Args {
    /// Run only those tests of the target TARGET that FILE names, one per line
    #[arg(long, value_name = "TARGET=FILE")]
    only: Vec<Selection>,
    /// Fail for each name in FILE that stands for no test of the target TARGET
    #[arg(long, value_name = "TARGET=FILE")]
    known: Vec<Selection>,
    /// Run this many tests of a target with labs at a time
    #[arg(long, default_value_t = 12)]
    threads: usize,
    /// Run the failed tests of a target once more, one at a time, and report those that pass as flaky
    #[arg(long)]
    again: bool,
    /// Run only tests whose names contain one of these
    filters: Vec<String>,
    /// Arguments of `cargo test` that choose what is built
    #[arg(last = true)]
    cargo: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let begin = Instant::now();
    let binaries = binaries::build(&args.cargo)?;
    let built = begin.elapsed();
    let (with_labs, others): (Vec<_>, Vec<_>) = binaries.iter().partition(|binary| binary.has_labs);
    let others = Mutex::new(others.into_iter());
    let next = || others.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<Tally> {
        let mut tally = Tally::default();
        while let Some(binary) = next() {
            tally.add(run(binary, &args)?);
        }
        Ok(tally)
    };
    let mut tally = Tally::default();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            tally.add(worker.join().unwrap_or_else(|it| resume_unwind(it))?);
        }
        Ok(())
    })?;
    for binary in with_labs {
        tally.add(run(binary, &args)?);
    }
    tally.print(built, begin.elapsed() - built);
    Ok(match tally.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the tests of `binary` that `args` select, and returns their results.
fn run(binary: &Binary, args: &Args) -> Result<Tally> {
    let is_its = |it: &&Selection| it.target == binary.target;
    let all = selection::list(&binary.path)?;
    let only = args.only.iter().find(is_its).map(|it| it.tests(&all));
    let mut options = match &only {
        Some(tests) => selection::arguments(tests),
        None => args.filters.clone(),
    };
    if binary.has_labs {
        options.push(format!("--test-threads={}", args.threads));
    }
    let mut results = watch::run(binary, &options)?;
    let failed = results.failed_tests();
    if args.again && (1..=MOST_AGAIN).contains(&failed.len()) {
        println!("{}: once more: {}", binary.name, failed.join(", "));
        let mut options = selection::arguments(&failed);
        options.push("--test-threads=1".to_owned());
        results.run_again(&watch::run(binary, &options)?);
    }
    results.expect(&binary.name, &only.unwrap_or_default());
    let known = args.known.iter().filter(is_its);
    for name in known.flat_map(|it| it.unknown(&all)) {
        let reason = format!("{name} is selected, but there is no such test");
        results.fail(&binary.name, reason);
    }
    Ok(results)
}
