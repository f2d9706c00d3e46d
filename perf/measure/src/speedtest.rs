//! `convoy speedtest`: measures a tunnel with one command.
//!
//! By default it measures between two namespaces of this machine, with two daemons of the calling program
//! ([`convoy_lab::measure::Bed`] draws them). With `--serve` and `--to` it measures an existing tunnel between
//! two hosts. Traffic comes from [`convoy_lab::traffic`]. Every process that it starts dies with it.
//!
//! 1. `args`, `test`: the request.
//! 2. `bed`, `compare`, `remote`: the ways to measure.
//! 3. `measure`: one test, with [`convoy_lab::measure`].
//! 4. `report`, `text`: the result, as JSON and as text.

mod args;
mod bed;
mod compare;
mod contrast;
mod inside;
mod measure;
mod progress;
mod remote;
mod report;
mod test;
mod text;

use std::io::{self, Write as _};

use anyhow::{Error, Result};
use convoy_lab::measure::Host;

pub use args::SpeedtestArgs;
pub use inside::{INSIDE, run_inside};
use report::{Report, Results, Settings};

/// Runs the tests and prints the result on standard output.
///
/// # Errors
///
/// If a test does not fit the MTU; if something is missing, with its fix; or if a daemon fails, with the
/// end of its log.
pub fn run(args: &SpeedtestArgs) -> Result<()> {
    args.check()?;
    let Some(results) = results(args).map_err(explain_shortage)? else {
        return Ok(());
    };
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        host: Host::of_this_machine(),
        settings: Settings::of(args),
        results,
    };
    let text = match args.json {
        true => serde_json::to_string(&report)? + "\n",
        false => text::of(&report),
    };
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

/// Runs the tests in the way that `args` ask for; returns their results, if there are any to print.
fn results(args: &SpeedtestArgs) -> Result<Option<Results>> {
    if let Some(address) = args.serve {
        remote::serve(address).map(|()| None)
    } else if let Some(server) = &args.to {
        remote::measure(args, server).map(Some)
    } else if let Some(out) = &args.profile {
        bed::run_profiled(args, out)
    } else if let Some(contrast) = args.compare {
        compare::run(args, contrast).map(Some)
    } else {
        bed::run(args).map(Some)
    }
}

/// Adds the fix to an error caused by a resource shortage.
fn explain_shortage(error: Error) -> Error {
    let mut systems = error.chain().filter_map(|it| it.downcast_ref());
    let fix = match systems.find_map(io::Error::raw_os_error) {
        Some(libc::ENOMEM) => {
            "out of memory (fix: end other programs, or raise the limit: `ulimit -v unlimited`, the \
             container's memory)"
        }
        Some(libc::EAGAIN) => {
            "no more processes or threads (fix: raise `ulimit -u`, or the container's limit of processes)"
        }
        Some(libc::EMFILE | libc::ENFILE) => "no more open files (fix: raise `ulimit -n`)",
        _ => return error,
    };
    error.context(fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_explained_and_other_errors_are_left_alone() {
        let text = |code| {
            let failed = Error::from(io::Error::from_raw_os_error(code)).context("fork");
            explain_shortage(failed).to_string()
        };
        assert!(text(libc::ENOMEM).contains("fix: end other programs"));
        assert!(text(libc::EAGAIN).contains("ulimit -u"));
        assert_eq!(text(libc::ENOENT), "fork");
    }
}
