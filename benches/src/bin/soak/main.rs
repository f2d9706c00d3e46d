//! Minutes or days of load, with a change every twenty seconds, looked at every second.
//!
//! ```text
//!        spoke 2 ═════════╗                         ╔═════════ spoke 4
//!        10.8.0.2         ║    hub, under test      ║         10.8.0.4
//!        10.9.2.2 ─ veth ─╫─ 10.9.2.1  10.9.4.1 ────╫─ veth ─ 10.9.4.4
//!                         ╟──────  10.8.0.1  ───────╢
//!        10.9.3.3 ─ veth ─╫─ 10.9.3.1  10.9.5.1 ────╫─ veth ─ 10.9.5.5
//!        fd08::3          ║                         ║          fd08::5
//!        spoke 3 ═════════╝                         ╚═════════ spoke 5
//! ```
//!
//! Each spoke has one TCP connection with the hub, inside the tunnel, that carries data both ways,
//! every byte of which is compared with what was sent; and a probe of 10 ms that the hub echoes.
//! Spokes 2 and 4 use IPv4 inside, 3 and 5 IPv6. Every minute the hub's port changes, a spoke's cable
//! is out for two seconds, and `wg syncconf` takes a peer from the hub and gives it back; sessions
//! are renewed every two minutes by the protocol.
//!
//! All is inside namespaces that die with this process, however it ends.

mod bed;
mod changes;
mod clock;
mod counters;
mod events;
mod flow;
mod handshakes;
mod header;
mod machine;
mod pattern;
mod picture;
mod probe;
mod process;
mod record;
mod run;
mod sampler;
mod verdict;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Parser;
use convoy_benches::results;

use record::Record;

/// Load, rekeys and changes on a hub with four spokes; verdicts, a result file and a plot.
#[derive(Debug, Parser)]
struct Args {
    /// How long the load lasts, in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    secs: u64,
    /// Mbit/s of each of the eight streams; 0: as fast as TCP goes
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// The program under test [default: `convoy` beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where soak.json and soak.svg are put
    #[arg(long, default_value = "benches/results")]
    out: PathBuf,
    /// Only judge and draw again the soak.json that is there
    #[arg(long)]
    again: bool,
    /// Only draw again the soak.json that is there
    #[arg(long, conflicts_with = "again")]
    draw: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let file = args.out.join("soak.json");
    if args.draw {
        draw(&Record::load(&file)?, &args.out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut record = if args.again {
        Record::load(&file)?
    } else {
        run::run(&run::Plan {
            program: program(&args)?,
            secs: args.secs,
            rate_mbps: args.rate,
        })?
    };
    record.verdicts = verdict::judge(&record);
    record.save(&file)?;
    draw(&record, &args.out)?;

    println!();
    for verdict in &record.verdicts {
        println!("{verdict}");
    }
    println!("\n{}, soak.svg", file.display());
    let passed = record.verdicts.iter().all(|verdict| verdict.passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn program(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(program) = &args.program {
        return Ok(program.clone());
    }
    let own = env::current_exe().context("find this program's file")?;
    let program = own.with_file_name("convoy");
    anyhow::ensure!(
        program.is_file(),
        "{} is missing (fix: make build)",
        program.display()
    );
    Ok(program)
}

fn draw(record: &Record, out: &Path) -> anyhow::Result<()> {
    let file = out.join("soak.svg");
    let svg = convoy_benches::plot::svg(&picture::of(record))?;
    Ok(results::save_text(&svg, &file)?)
}
