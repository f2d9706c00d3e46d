//! `convoy-bench`: runs all long measurements and writes the page with their results.
//!
//! 1. [`convoy_rows`]: the one form of all results, and what shows them.
//! 2. One subcommand each: [`peers`], [`commits`], … Their scenes, contenders, tables and plots are data.
//! 3. [`tunnel`]: the scenes in which tunnels are compared; [`rounds`]: the order of measurements.

mod agent;
mod commits;
mod flood;
mod growth;
mod packets;
mod peers;
mod programs;
mod record;
mod report;
mod rounds;
mod soak;
mod speedtest;
mod tunnel;

use std::process::ExitCode;

use clap::Parser as _;

/// Measures Convoy: against other programs and commits, over long runs, and under attack.
#[derive(Debug, clap::Parser)]
#[command(name = "convoy-bench")]
enum Command {
    Commits(commits::Args),
    Flood(flood::Args),
    Forward(peers::Plan),
    Growth(growth::Args),
    Packets(packets::Args),
    Peers(peers::Args),
    Soak(soak::Args),
    Record(record::Args),
    Report(report::Args),
    #[command(name = agent::AGENT, hide = true)]
    TrafficAgent,
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Commits(args) => commits::run(&args),
        Command::Flood(args) => flood::run(&args),
        Command::Forward(plan) => peers::forward(&plan),
        Command::Growth(args) => growth::run(&args),
        Command::Packets(args) => packets::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::TrafficAgent => convoy_lab::traffic::serve_child().map_err(Into::into),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("convoy-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
