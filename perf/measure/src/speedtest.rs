//! `convoy speedtest`: measures a tunnel with one command.
//!
//! By default it measures between two namespaces of this machine, with two daemons of the calling program
//! ([`convoy_lab::measure::Bed`] draws them). With `--serve` and `--to` it measures an existing tunnel between
//! two hosts. Traffic comes from [`convoy_lab::traffic`]. Every process that it starts dies with it.
//!
//! 1. `args`, `test`: the request.
//! 2. `bed`, `compare`, `remote`: the ways to measure.
//! 3. `measure`: one test, with [`convoy_lab::measure`].
//! 4. `report`, `print`, `text`: the result, as JSON and as text.

mod args;
mod bed;
mod compare;
mod contrast;
mod inside;
mod measure;
mod print;
mod progress;
mod remote;
mod report;
mod test;
mod text;

pub use args::SpeedtestArgs;
pub use inside::{INSIDE, run_inside};

use crate::Error;
use report::Results;

/// Runs the tests and prints the result on standard output.
///
/// # Errors
///
/// If a test does not fit the MTU; if something is missing, with its fix; or if a daemon fails, with the
/// end of its log.
pub fn run(args: &SpeedtestArgs) -> Result<(), Error> {
    args.check()?;
    let results = results(args).map_err(Error::explain_shortage)?;
    results.map_or(Ok(()), |results| print::print(args, results))
}

/// Runs the tests in the way that `args` ask for; returns their results, if there are any to print.
fn results(args: &SpeedtestArgs) -> Result<Option<Results>, Error> {
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
