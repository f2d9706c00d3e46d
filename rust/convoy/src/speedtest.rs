//! `convoy speedtest`: one command that measures a tunnel.
//!
//! By default between two namespaces of this machine, with two daemons of this program
//! ([`convoy_lab::measure::Bed`] draws it); with `--serve` and `--to` over a tunnel between two hosts that is already
//! up. Traffic comes from [`convoy_lab::traffic`]. All that is started dies with this process.
//!
//! 1. [`args`], [`mod@test`]: what is asked for.
//! 2. [`here`], [`compare`], [`remote`], [`profiled`]: the four ways to measure.
//! 3. [`measure`]: one test, with the means of [`convoy_lab::measure`].
//! 4. [`report`], [`table`]: what is printed.

mod args;
mod bed;
mod compare;
mod here;
mod inside;
mod measure;
mod memory;
mod profiled;
mod progress;
mod remote;
mod report;
mod table;
mod test;

pub(crate) use args::SpeedtestArgs;
pub(crate) use inside::{InsideArgs, run as run_inside};

use crate::told_once::told_once;

/// Measures, and prints what was found on the standard output.
///
/// # Errors
/// When a test does not fit the MTU, when something is missing, with its fix, or when a daemon fails, with the end of its log.
pub(crate) fn run(args: &SpeedtestArgs) -> anyhow::Result<()> {
    args.check()?;
    let outcome = if let Some(address) = args.serve {
        remote::serve(address)
    } else if let Some(server) = &args.to {
        remote::measure(args, server)
    } else if let Some(out) = &args.profile {
        profiled::run(args, out)
    } else if let Some(what) = args.compare {
        compare::run(args, what)
    } else {
        here::run(args)
    };
    outcome.map_err(|error| told_once(&memory::explain_shortage(error)))
}
