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

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

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
    let tally = Mutex::new(Tally::default());
    let (with_labs, others): (Vec<_>, Vec<_>) = binaries.iter().partition(|binary| binary.has_labs);
    let others = Mutex::new(others.into_iter());
    let next = || others.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(binary) = next() {
                run(binary, &args, &tally)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(work)).collect();
        let mut results = workers.into_iter().map(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.try_for_each(|result| result)
    })?;
    for binary in with_labs {
        run(binary, &args, &tally)?;
    }
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.print(built, begin.elapsed() - built);
    Ok(if tally.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the tests of `binary` that `args` select, and adds their results to `tally`.
fn run(binary: &Binary, args: &Args, tally: &Mutex<Tally>) -> Result<()> {
    let only = args.only.iter().find(|only| only.target == binary.target);
    let only = only.map(|only| only.tests(&binary.path)).transpose()?;
    let mut options = match &only {
        Some(tests) => selection::arguments(tests),
        None => args.filters.clone(),
    };
    let known = args.known.iter().filter(|of| of.target == binary.target);
    let unknown = known.map(|of| of.unknown(&binary.path));
    let unknown = unknown.collect::<Result<Vec<_>>>()?.concat();
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
    if let Some(tests) = only {
        results.expect(&binary.name, &tests);
    }
    for name in unknown {
        results.fail(
            &binary.name,
            &format!("{name} is selected, but there is no such test"),
        );
    }
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    tally.add(results);
    Ok(())
}
