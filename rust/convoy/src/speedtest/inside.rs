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
/// The kernel's name of UDP segmentation offload (`ethtool -k`).
const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

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
    /// Turn UDP segmentation off on an interface
    CutDatagrams { interface: String },
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
        Role::CutDatagrams { interface } => offload::turn_off(interface, UDP_SEGMENTATION),
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

/// Makes the veth cut GSO datagrams before they leave, as hardware must.
pub(super) fn cut_veth_datagrams(namespace: &Namespace, interface: &str) -> anyhow::Result<()> {
    let output = this_program(namespace)?
        .args([SUBCOMMAND, "cut-datagrams", interface])
        .output()
        .context("start a process inside the namespace")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("turn {UDP_SEGMENTATION} off: {}", reason.trim());
    }
    Ok(())
}

fn this_program(namespace: &Namespace) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("find this program's file")?;
    Ok(namespace.command(program))
}
