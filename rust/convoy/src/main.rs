//! The daemon and its tools.

mod background;
mod cli;
mod daemon;
mod link_monitor;
mod logging;
mod process;
mod speedtest;
mod stats;
mod uapi;
mod wall_clock;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match (cli.command, cli.interface) {
        (Some(Command::Stats(args)), _) => stats::run(&args),
        (Some(Command::Speedtest(args)), _) => speedtest::run(&args),
        (Some(Command::LabInside(args)), _) => speedtest::run_inside(&args),
        (None, Some(interface)) => daemon::start(&interface, &cli.daemon),
        (None, None) => unreachable!("INVARIANT: clap asks for a command or an interface"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("convoy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
