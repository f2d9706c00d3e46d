//! The program `convoy`: its command line, and the commands that have no crate of their own.
//!
//! Only `main.rs` calls it, which adds the allocator.

mod check;
mod cli;
mod doctor;
mod documents;
mod help;
mod keys;
#[cfg(feature = "measure")]
mod measure;
mod wiping;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use convoy_daemon::{self as daemon, capture};
use convoy_process::{self as process, logging, paragraph};

use cli::{Cli, Command};

pub use wiping::Wiping;

/// Runs the program that the command line requests.
#[must_use]
pub fn run() -> ExitCode {
    process::search_absolute_directories(convoy_host::search_path);
    let cli = Cli::parse();
    close_callers_descriptors(cli.command.as_ref());
    let outcome = match (cli.command, cli.interface) {
        (Some(Command::Up(args)), _) => convoy_client::up::start(&args),
        (Some(Command::Down(args)), _) => convoy_client::down::run(&args),
        (Some(Command::Exec(args)), _) => return convoy_rootless::exec::run(&args),
        (Some(Command::ExecSupervisor(args)), _) => convoy_rootless::exec::supervise(&args),
        (Some(Command::NamespaceHolder), _) => convoy_rootless::exec::hold(),
        (Some(Command::Forward(args)), _) => convoy_rootless::forward::run(&args),
        (Some(Command::Import(args)), _) => convoy_rootless::forward::import(&args),
        (Some(Command::Reload(args)), _) => convoy_client::requests::reload(&args),
        (Some(Command::Status(args)), _) => match convoy_client::status::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        (Some(Command::Events(args)), _) => convoy_client::follow::run(&args),
        (Some(Command::Capture(args)), _) => capture::run(&args),
        (Some(Command::Pause(args)), _) => convoy_client::requests::pause(&args),
        (Some(Command::Resume(args)), _) => convoy_client::requests::resume(&args),
        (Some(Command::Log(args)), _) => convoy_client::log::run(&args),
        (Some(Command::Check(args)), _) => check::run(&args),
        (Some(Command::Doctor(args)), _) => match doctor::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        (Some(Command::DoctorProbe), _) => doctor::probes::run(),
        (Some(Command::Genkey), _) => keys::generate_private(),
        (Some(Command::Genpsk), _) => keys::generate_preshared(),
        (Some(Command::Pubkey), _) => keys::print_public(),
        (Some(Command::Stats(args)), _) => convoy_stats::run(&args),
        (Some(Command::Help(args)), _) => help::run(&args, Cli::command()),
        (Some(Command::GenerateDocuments(args)), _) => documents::run(&args, &Cli::command()),
        (Some(Command::TunnelProcess(args)), _) => convoy_keeper::privileges::run(&args),
        #[cfg(feature = "measure")]
        (Some(Command::Profile(args)), _) => measure::profile(&args),
        #[cfg(feature = "measure")]
        (Some(Command::Speedtest(args)), _) => measure::speedtest(&args),
        #[cfg(feature = "measure")]
        (Some(Command::LabInside), _) => measure::inside(),
        (None, Some(interface)) => daemon::start(&interface, &cli.daemon),
        (None, None) => unreachable!("INVARIANT: clap requires a command or an interface"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::fail(&error);
            ExitCode::FAILURE
        }
    }
}

/// Processes that stay, and `exec`, have nothing of their caller's but what it hands over.
fn close_callers_descriptors(command: Option<&Command>) {
    match command {
        None => process::close_inherited(&daemon::HANDED_OVER),
        Some(Command::Up(_)) => process::close_inherited(&[convoy_metrics::LISTENER]),
        Some(
            Command::Down(_)
            | Command::Exec(_)
            | Command::ExecSupervisor(_)
            | Command::NamespaceHolder
            | Command::Forward(_)
            | Command::TunnelProcess(_),
        ) => process::close_inherited(&[]),
        Some(_) => {}
    }
}
