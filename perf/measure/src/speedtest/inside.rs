//! The part of the program that the speed test starts again inside a namespace.

use std::{path::PathBuf, process::Command};

use clap::{Args, Subcommand};
use convoy_lab::{Namespace, UDP_SEGMENTATION, set_feature, traffic};

use crate::{Error, error::Step as _};

/// The name of the hidden subcommand that the program routes to [`run_inside`].
pub const INSIDE: &str = "lab-inside";
/// The kernel's names of the features that let an interface take several packets in one (`ethtool -k`).
const SEGMENTATION: [&str; 3] = [
    UDP_SEGMENTATION,
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
];

/// Arguments of the hidden subcommand.
#[derive(Debug, Args)]
pub struct InsideArgs {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Do the traffic jobs that arrive on the standard input
    Traffic,
    /// Turn segmentation off on an interface
    CutBatches { interface: String },
}

/// Does the job for which the speed test started this process.
///
/// # Errors
///
/// When the controller goes away, or the interface does not let its features be changed.
pub fn run_inside(args: &InsideArgs) -> Result<(), Error> {
    match &args.role {
        Role::Traffic => Ok(traffic::serve_child()?),
        Role::CutBatches { interface } => SEGMENTATION
            .iter()
            .try_for_each(|feature| set_feature(interface, feature, false))
            .step("turn segmentation off"),
    }
}

/// This program.
pub(super) fn program() -> Result<PathBuf, Error> {
    std::env::current_exe().step("find this program's file")
}

/// Makes `command`, which starts this program, a traffic agent.
pub(super) fn traffic(mut command: Command) -> Command {
    command.args([INSIDE, "traffic"]);
    command
}

/// Makes the veth cut GSO datagrams and TCP super-packets before they leave, as hardware must.
pub(super) fn cut_veth_batches(namespace: &Namespace, interface: &str) -> Result<(), Error> {
    let mut command = namespace.command(program()?);
    command.args([INSIDE, "cut-batches", interface]);
    let output = command
        .output()
        .step("start a process inside the namespace")?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let reason = String::from_utf8_lossy(&output.stderr);
            Err(Error::Refused(reason.trim().to_owned()))
        }
    }
}
