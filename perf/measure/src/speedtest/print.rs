//! Prints the results on standard output.

use std::io::{self, Write as _};

use convoy_lab::measure::Host;

use super::{
    args::SpeedtestArgs,
    report::{Report, Results, Settings},
    text,
};
use crate::Error;

/// Prints the results as JSON or as text.
pub(super) fn print(args: &SpeedtestArgs, results: Results) -> Result<(), Error> {
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        host: Host::of_this_machine(),
        settings: settings(args),
        results,
    };
    let text = match args.json {
        true => serde_json::to_string(&report).map_err(io::Error::from)? + "\n",
        false => text::of(&report),
    };
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

/// Returns the setup of the tunnel that `args` ask for.
fn settings(args: &SpeedtestArgs) -> Settings {
    let is_here = args.to.is_none();
    Settings {
        secs: args.secs,
        daemon: args.switches(),
        mtu: is_here.then_some(args.mtu),
        peers: is_here.then_some(args.peers),
        veth_gso: is_here.then(|| args.veth_gso()),
        loss_percent: args.loss,
        to: args.to.clone(),
    }
}
