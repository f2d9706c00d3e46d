//! What a result belongs to: machine, versions, command line.

use std::{env, process::Command};

use anyhow::{Context as _, ensure};
use convoy_lab::measure::Host;
use serde::{Deserialize, Serialize};

/// What a result belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The machine.
    pub host: Host,
    /// Of the source tree; `-dirty` where it had changes.
    pub commit: String,
    /// UTC.
    pub started: String,
    /// The same in seconds since 1970-01-01.
    pub began_unix_s: u64,
    /// As it was called.
    pub command: Vec<String>,
    /// Of the programs that took part, as they tell them.
    pub versions: Vec<String>,
}

impl Origin {
    /// That of a run of this program which begins now.
    #[must_use]
    pub fn of_this_run(versions: Vec<String>) -> Self {
        let now = jiff::Timestamp::now();
        Self {
            host: Host::of_this_machine(),
            commit: commit().unwrap_or_else(|_| "unknown".to_owned()),
            started: now.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            began_unix_s: now.as_second().cast_unsigned(),
            command: env::args().collect(),
            versions,
        }
    }
}

impl Origin {
    /// Where and when, in a line for plots.
    #[must_use]
    pub fn line(&self) -> String {
        let Host {
            cpus, cpu, kernel, ..
        } = &self.host;
        let cpu = cpu.as_deref().unwrap_or("an unnamed CPU");
        let Self {
            commit, started, ..
        } = self;
        format!("{cpus} × {cpu} · Linux {kernel} · {commit} · {started}")
    }
}

/// The commit of this source tree; `-dirty` where it has changes.
///
/// # Errors
/// Outside of a repository, or without git.
pub fn commit() -> anyhow::Result<String> {
    let describe = [
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ];
    first_line_of(Command::new("git").args(describe))
}

/// The first line of what a program prints.
///
/// # Errors
/// When it cannot be started, or ends with a failure.
pub fn first_line_of(command: &mut Command) -> anyhow::Result<String> {
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
