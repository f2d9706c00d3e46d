//! What both tables begin with: the machine, the programs, the call.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use convoy_benches::origin::{commit, first_line_of};
use convoy_lab::measure::Host;
use serde::Serialize;

use crate::contestants::Contestant;

/// What a result belongs to.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) command: Vec<String>,
    /// Of this repository, `-dirty` where files are changed; none outside of one.
    pub(crate) commit: Option<String>,
    /// Seconds since 1970 (UTC) when the run ended.
    pub(crate) ended: u64,
    pub(crate) host: Host,
    pub(crate) iperf3: Option<String>,
    pub(crate) repetitions: u32,
    /// Seconds of a TCP run.
    pub(crate) secs: u64,
    pub(crate) contestants: Vec<Entry>,
}

/// Who took part.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    program: PathBuf,
    arguments: Vec<String>,
    /// What was set on its interface; none is what the program sets.
    txqueuelen: Option<u32>,
}

impl Header {
    pub(crate) fn of_this_run(contestants: &[Contestant], repetitions: u32, secs: u64) -> Self {
        Self {
            command: std::env::args().collect(),
            commit: commit().ok(),
            ended: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            host: Host::of_this_machine(),
            iperf3: first_line_of(Command::new("iperf3").arg("--version")).ok(),
            repetitions,
            secs,
            contestants: contestants.iter().map(Entry::new).collect(),
        }
    }

    /// For people: the machine in one line, and each program.
    pub(crate) fn markdown(&self) -> String {
        let host = &self.host;
        let mut text = format!(
            "{host} · TCP {} · {} repetitions · commit {}\n",
            host.congestion_control.as_deref().unwrap_or("unknown"),
            self.repetitions,
            self.commit.as_deref().unwrap_or("unknown"),
        );
        for one in &self.contestants {
            // The version is that of the program: its variants have the same.
            if !one.name.contains('+') {
                let version = one.version.as_deref().unwrap_or("unknown");
                text += &format!("- {}: {version}\n", one.name);
            }
        }
        text
    }
}

impl Entry {
    fn new(contestant: &Contestant) -> Self {
        Self {
            name: contestant.name.clone(),
            version: contestant.version(),
            program: contestant.program.clone(),
            arguments: contestant.arguments.clone(),
            txqueuelen: contestant.queue_length,
        }
    }
}
