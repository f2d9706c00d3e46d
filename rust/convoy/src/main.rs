//! The daemon and its tools.

mod speedtest;

use clap::Parser;

#[derive(Parser)]
#[command(version)]
enum Cli {
    /// Measure this machine's tunnel, or one between two hosts
    Speedtest(speedtest::SpeedtestArgs),
    #[command(hide = true)]
    LabInside(speedtest::InsideArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse() {
        Cli::Speedtest(args) => speedtest::run(&args),
        Cli::LabInside(args) => speedtest::run_inside(&args),
    }
}
