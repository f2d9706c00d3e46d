//! What this program does when the speed test starts it inside a namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use convoy_lab::{Namespace, UDP_SEGMENTATION, set_feature, traffic};

/// The hidden subcommand's name, as `main` has it.
const SUBCOMMAND: &str = "lab-inside";
/// The kernel's names of what lets an interface take several packets in one (`ethtool -k`).
const SEGMENTATION: [&str; 3] = [
    UDP_SEGMENTATION,
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
];

/// Arguments of the hidden subcommand.
#[derive(Debug, Args)]
pub(crate) struct InsideArgs {
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

/// Does what this process was started for.
pub(crate) fn run(args: &InsideArgs) -> anyhow::Result<()> {
    match &args.role {
        Role::Traffic => Ok(traffic::serve_child()?),
        Role::CutBatches { interface } => Ok(SEGMENTATION
            .iter()
            .try_for_each(|feature| set_feature(interface, feature, false))?),
    }
}

/// This program, as it is to be started inside.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("find this program's file")
}

/// A traffic agent inside `namespace`.
pub(super) fn traffic_command(namespace: &Namespace, program: &Path) -> Command {
    traffic(namespace.command(program))
}

/// Makes `command`, which starts this program, a traffic agent.
pub(super) fn traffic(mut command: Command) -> Command {
    command.args([SUBCOMMAND, "traffic"]);
    command
}

/// Makes the veth cut GSO datagrams and TCP super-packets before they leave, as hardware must.
pub(super) fn cut_veth_batches(namespace: &Namespace, interface: &str) -> anyhow::Result<()> {
    let output = namespace
        .command(program()?)
        .args([SUBCOMMAND, "cut-batches", interface])
        .output()
        .context("start a process inside the namespace")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("turn segmentation off: {}", reason.trim());
    }
    Ok(())
}
