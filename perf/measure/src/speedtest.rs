//! `convoy speedtest`: one command that measures a tunnel.
//!
//! By default between two namespaces of this machine, with two daemons of the program that calls this
//! ([`convoy_lab::measure::Bed`] draws it); with `--serve` and `--to` over a tunnel between two hosts that
//! is already up. Traffic comes from [`convoy_lab::traffic`]. Every process it starts dies with it.
//!
//! 1. `args`, `test`: the request.
//! 2. `bed`, `compare`, `remote`: the ways to measure.
//! 3. `measure`: one test, with the means of [`convoy_lab::measure`].
//! 4. `report`, `text`: the result, as JSON and for people.

mod args;
mod bed;
mod compare;
mod inside;
mod measure;
mod progress;
mod remote;
mod report;
mod test;
mod text;

pub use args::SpeedtestArgs;
pub use inside::{INSIDE, run_inside};

use crate::Error;

/// Measures, and prints the result on the standard output.
///
/// # Errors
///
/// When a test does not fit the MTU, when something is missing, with its fix, or when a daemon fails,
/// with the end of its log.
pub fn run(args: &SpeedtestArgs) -> Result<(), Error> {
    args.check()?;
    let outcome = if let Some(address) = args.serve {
        remote::serve(address)
    } else if let Some(server) = &args.to {
        remote::measure(args, server)
    } else if let Some(out) = &args.profile {
        bed::run_profiled(args, out)
    } else if let Some(contrast) = args.compare {
        compare::run(args, contrast)
    } else {
        bed::run(args)
    };
    outcome.map_err(Error::explain_shortage)
}
