//! What a result belongs to: machine, versions, command line.

use std::{env, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use convoy_lab::measure::Host;
use serde::{Deserialize, Serialize};

/// What a result belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) host: Host,
    /// Of the source tree; `-dirty` where it had changes.
    pub(crate) commit: String,
    /// UTC.
    pub(crate) started: String,
    /// The same in seconds since 1970-01-01.
    pub(crate) began_unix_s: u64,
    pub(crate) command: Vec<String>,
    /// Of the program under test and of `wg`, as they tell them.
    pub(crate) versions: Vec<String>,
    /// How long the load lasted.
    pub(crate) secs: u64,
    /// Mbit/s of each stream; 0: as fast as TCP goes.
    pub(crate) rate_mbps: f64,
    /// The daemon under test, and those of the spokes.
    pub(crate) daemons: Vec<String>,
}

impl Header {
    /// The header of a run that begins now.
    pub(crate) fn new(
        program: &Path,
        secs: u64,
        rate_mbps: f64,
        daemons: Vec<String>,
    ) -> anyhow::Result<Self> {
        let now = jiff::Timestamp::now();
        Ok(Self {
            host: Host::of_this_machine(),
            commit: commit().unwrap_or_else(|_| "unknown".to_owned()),
            started: now.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            began_unix_s: now.as_second().cast_unsigned(),
            command: env::args().collect(),
            versions: vec![
                output(Command::new(program).arg("--version"))?,
                output(Command::new("wg").arg("--version"))?,
            ],
            secs,
            rate_mbps,
            daemons,
        })
    }
}

fn commit() -> anyhow::Result<String> {
    let describe = [
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ];
    output(Command::new("git").args(describe))
}

/// The first line of what a program prints.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    ensure!(
        output.status.success(),
        "{name} ended with {}",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
