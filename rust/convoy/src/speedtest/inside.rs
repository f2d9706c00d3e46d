//! What this program does when the speed test starts it inside a namespace.

use std::io;
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use convoy_lab::Namespace;
use convoy_lab::traffic::{self, Scope};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use super::offload;

/// The hidden subcommand's name, as `main` has it.
const SUBCOMMAND: &str = "lab-inside";
/// The kernel's names of what lets an interface take several packets in one (`ethtool -k`).
const SEGMENTATION: [&str; 3] = [
    "tx-udp-segmentation",
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
        Role::Traffic => {
            // An agent that is sending would not notice otherwise that nobody waits for it.
            set_pdeathsig(Signal::SIGKILL)?;
            let (input, output) = (io::stdin().lock(), io::stdout().lock());
            Ok(traffic::serve(input, output, &Scope::namespace())?)
        }
        Role::CutBatches { interface } => SEGMENTATION
            .iter()
            .try_for_each(|feature| offload::turn_off(interface, feature)),
    }
}

/// A traffic agent inside `namespace`.
pub(super) fn traffic_command(namespace: &Namespace) -> anyhow::Result<Command> {
    Ok(traffic(this_program(namespace)?))
}

/// Makes `command`, which starts this program, a traffic agent.
pub(super) fn traffic(mut command: Command) -> Command {
    command.args([SUBCOMMAND, "traffic"]);
    command
}

/// Makes the veth cut GSO datagrams and TCP super-packets before they leave, as hardware must.
pub(super) fn cut_veth_batches(namespace: &Namespace, interface: &str) -> anyhow::Result<()> {
    let output = this_program(namespace)?
        .args([SUBCOMMAND, "cut-batches", interface])
        .output()
        .context("start a process inside the namespace")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("turn segmentation off: {}", reason.trim());
    }
    Ok(())
}

fn this_program(namespace: &Namespace) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("find this program's file")?;
    Ok(namespace.command(program))
}
