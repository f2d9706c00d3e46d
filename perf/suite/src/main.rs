//! `convoy-suite`: builds the workspace's tests and runs them, one test binary after the other.
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

use std::{process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Parser;

use crate::{selection::Selection, tally::Tally};

/// Builds tests and runs them.
#[derive(Parser)]
struct Args {
    /// Run only those tests of the target TARGET that FILE names, one per line
    #[arg(long, value_name = "TARGET=FILE")]
    only: Vec<Selection>,
    /// Run this many tests of an integration target at a time
    #[arg(long, default_value_t = 12)]
    threads: usize,
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
    let mut tally = Tally::default();
    for binary in &binaries {
        let only = args.only.iter().find(|only| only.target == binary.target);
        let only = only.map(|only| only.tests(&binary.path)).transpose()?;
        let mut options = match &only {
            Some(tests) => selection::arguments(tests),
            None => args.filters.clone(),
        };
        if binary.is_integration {
            options.push(format!("--test-threads={}", args.threads));
        }
        watch::run(binary, &options, &mut tally)?;
        if let Some(tests) = only {
            tally.expect(&binary.name, &tests);
        }
    }
    tally.print(built, begin.elapsed() - built);
    Ok(if tally.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
