//! What a flood of datagrams costs the traffic of a tunnel: `make flood`.
//!
//! ```text
//!   attacker                                   right                          left
//!   generator                                  daemon wg0 ══════ tunnel ══════ wg0 daemon
//!   198.18.0.0/16 10.10.0.1 ── veth ── 10.10.0.2   veth0 ───────── veth ────── veth0
//!                                              TCP receiver                    TCP sender
//! ```
//!
//! For each kind of flood, pairs of runs in turns: TCP through the tunnel, while the generator aims
//! at a closed port of the right host, and while it aims at the daemon's port. What the first costs
//! is the kernel's and the generator's doing; the ratio of the two is the daemon's.
//!
//! Exit status 1 if a kind fails; the message names it.

mod kind;
mod measure;
mod report;
mod scene;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand, ValueEnum as _};
use convoy_benches::results;
use convoy_lab::{measure::Host, traffic, wireguard::Implementation};

use kind::Kind;
use report::{Report, Settings};
use scene::Scene;

/// Floods a daemon's port while TCP goes through its tunnel, and compares with a closed port.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// The daemon; without, the `convoy` beside this program
    #[arg(long)]
    program: Option<PathBuf>,
    /// The kinds of flood, instead of all
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Pairs of runs a kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Counted seconds of a run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    secs: u64,
    /// Datagrams a second
    #[arg(long, default_value_t = 100_000)]
    rate: u32,
    /// Also write the results to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Do the traffic jobs that arrive on the standard input
    #[command(hide = true)]
    Traffic,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Traffic) => {
            traffic::serve_child()?;
            Ok(ExitCode::SUCCESS)
        }
        None => flood(&arguments),
    }
}

fn flood(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let kinds = match &arguments.kinds[..] {
        [] => Kind::value_variants(),
        kinds => kinds,
    };
    let settings = Settings {
        program: program(arguments)?,
        rounds: arguments.rounds,
        secs: arguments.secs,
        rate: arguments.rate,
    };
    let mut scene = Scene::new(&Implementation::new(&settings.program))?;
    let mut report = Report {
        host: Host::of_this_machine(),
        settings,
        rows: Vec::new(),
    };
    report.print_head(scene.silent_ports());
    for &kind in kinds {
        let row = measure::row(&mut scene, kind, &report.settings).context(kind.name())?;
        row.print();
        report.rows.push(row);
    }
    report.print_foot();
    if let Some(file) = &arguments.json {
        results::save(&report, file)?;
    }
    let mut failures = report.failures().peekable();
    if failures.peek().is_none() {
        return Ok(ExitCode::SUCCESS);
    }
    failures.for_each(|failure| eprintln!("FAILED: {failure}"));
    Ok(ExitCode::FAILURE)
}

fn program(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    if let Some(program) = &arguments.program {
        return Ok(program.clone());
    }
    let program = std::env::current_exe()?.with_file_name("convoy");
    ensure!(
        program.exists(),
        "{} is not there (fix: `make flood`, or --program)",
        program.display()
    );
    Ok(program)
}
