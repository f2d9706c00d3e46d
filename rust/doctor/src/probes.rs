//! Features of the kernel that only a trial shows: TUN offload, UDP GSO and GRO.
//!
//! `convoy doctor-probe-kernel` tries them in a network namespace of its own, which vanishes with the process, however
//! that ends. Where it cannot have one, it uses the loopback of the present namespace, and creates the TUN there only if
//! it has the right to, without bringing it up.

mod namespace;
mod tun;
mod udp;

use std::{io::Write as _, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use nix::sys::{prctl::set_pdeathsig, signal::Signal};
use serde::{Deserialize, Serialize};
use tokio::{process::Command, time::timeout};

use convoy_process::PROGRAM;

pub(super) use tun::{Tun, TunFailure};
pub(super) use udp::Udp;

/// The hidden command: too long for the name of an interface, so that it cannot hide one.
pub const COMMAND: &str = "doctor-probe-kernel";

/// Time limit for all trials.
const TIME: Duration = Duration::from_secs(10);

/// Abilities of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Probed {
    pub(super) tun: Result<Tun, TunFailure>,
    /// Or else the system's error.
    pub(super) udp: Result<Udp, String>,
}

/// Makes a process of its own try them.
pub(super) async fn gather() -> anyhow::Result<Probed> {
    let mut command = Command::new(PROGRAM);
    command.arg(COMMAND).env_clear().kill_on_drop(true);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = timeout(TIME, command.output());
    let output = output.await.context("the trials do not end")??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.trim());
    }
    serde_json::from_slice(&output.stdout).context("the trials' output is incomplete")
}

/// Tries them, and prints the outcome as JSON.
///
/// # Errors
/// If the process cannot be set up, or standard output is closed.
pub fn run() -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    // Before there is another thread.
    let is_own = namespace::enter();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let probed = builder.enable_all().build()?.block_on(async {
        if is_own {
            namespace::bring_up("lo").await?;
        }
        anyhow::Ok(Probed {
            udp: udp::probe().await.map_err(|error| error.to_string()),
            tun: tun::probe(is_own).await,
        })
    })?;
    let mut line = serde_json::to_vec(&probed)?;
    line.push(b'\n');
    Ok(std::io::stdout().write_all(&line)?)
}
