//! The daemon and its tools.

mod background;
mod cli;
mod daemon;
mod link_monitor;
mod logging;
mod panics;
mod process;
mod profile;
mod speedtest;
mod stats;
mod told_once;
mod uapi;
mod wall_clock;
mod wiping;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use wiping::Wiping;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping(std::alloc::System);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match (cli.command, cli.interface) {
        (Some(Command::Stats(args)), _) => stats::run(&args),
        (Some(Command::Profile(args)), _) => profile::run(&args),
        (Some(Command::Speedtest(args)), _) => speedtest::run(&args),
        (Some(Command::LabInside(args)), _) => speedtest::run_inside(&args),
        (None, Some(interface)) => daemon::start(&interface, &cli.daemon),
        (None, None) => unreachable!("INVARIANT: clap asks for a command or an interface"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            panics::say(&format!("convoy: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
