//! `make bench-peers`: Convoy and its peers, measured in turns on one machine.
//!
//! ```text
//!    left                                          right
//!    daemon wg0 ═══════════ tunnel ═══════════ wg0 daemon
//!         veth0 ──────────── veth ──────────── veth0
//!    iperf3, ping, paced UDP                   iperf3, UDP receiver
//! ```
//!
//! Both ends run the same program. Each repetition runs every contestant once, in an order that
//! turns from one repetition to the next; ratios are taken within a repetition.
//!
//! 1. [`args`], [`contestants`]: what is asked for, and who takes part.
//! 2. [`turns`]: who is measured when.
//! 3. [`iperf`], [`ping`], [`udp`]: the generators, the same for all.
//! 4. The narrow set, which has to be kept: [`suite`]: the repetitions; [`turn`]: all tests of one
//!    contestant in one of them; [`convoy_benches::peers`]: what is compared, how surely, and against what.
//! 5. [`wide`]: the wide set.
//! 6. [`outcome`], [`header`], [`report`], [`table`]: what is written.

mod args;
mod contestants;
mod header;
mod iperf;
mod outcome;
mod ping;
mod report;
mod suite;
mod table;
mod turn;
mod turns;
mod udp;
mod wide;

use std::process::ExitCode;

use clap::Parser as _;
use convoy_benches::results;
use convoy_lab::measure::Host;

use args::{Args, Set};

/// The hidden argument that makes this program a traffic agent.
const AGENT: &str = "traffic-agent";

fn main() -> ExitCode {
    let outcome = if std::env::args().nth(1).as_deref() == Some(AGENT) {
        convoy_lab::traffic::serve_child().map_err(Into::into)
    } else {
        run(&Args::parse())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(advice) = Host::of_this_machine().cubic_advice() {
        eprintln!("bench_peers: {advice}");
    }
    if args.includes(Set::Narrow) {
        let report = suite::run(args)?;
        println!("{}", table::markdown(&report));
        if let Some(file) = args.file(Set::Narrow) {
            results::save(&report, &file)?;
            eprintln!("every single value: {}", file.display());
        }
    }
    if args.includes(Set::Wide) {
        wide::run(args)?;
    }
    Ok(())
}
