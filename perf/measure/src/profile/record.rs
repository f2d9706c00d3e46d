//! `perf record` and `perf script`: samples of the running functions.

use std::{fs::File, process::Command};

use convoy_lab::Pid;

use super::{directory::Directory, tools};
use crate::{Error, error::Step as _};

/// Samples per second of CPU time; odd, to stay out of step with periodic work.
const FREQUENCY: &str = "9973";
/// The recording in `perf`'s own format.
const DATA: &str = "perf.data";
/// The recording as text.
pub(super) const TEXT: &str = "profile.perf";
/// The best event first. Virtual machines often have no cycle counter.
const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];

/// The means to record on this machine.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    event: &'static str,
    call_graph: &'static str,
}

impl Recorder {
    /// Finds an event that can be recorded for `pids`, by recording briefly.
    ///
    /// Most machines that do not count cycles fall back to cpu-clock by themselves.
    pub(super) fn find(
        directory: &Directory,
        pids: &[Pid],
        call_graph: &'static str,
    ) -> Result<Self, Error> {
        let [best, other] = EVENTS.map(|event| Self { event, call_graph });
        let try_out = |recorder: Self| {
            let mut command = recorder.command(directory, pids)?;
            command.args(["--", "true"]);
            tools::run("perf record", command).map(|()| recorder)
        };
        try_out(best).or_else(|_| try_out(other))
    }

    pub(super) fn command(&self, directory: &Directory, pids: &[Pid]) -> Result<Command, Error> {
        // Otherwise perf would rename and keep an old recording.
        directory.remove(DATA)?;
        let mut command = tools::command("perf");
        command.args(["record", "--quiet", "--event", self.event]);
        command.args(["--freq", FREQUENCY, "--call-graph", self.call_graph]);
        command.args(["--pid", &tools::list(pids), "--output"]);
        command.arg(directory.file(DATA));
        Ok(command)
    }
}

/// Writes the recording as text.
pub(super) fn write_text(directory: &Directory) -> Result<(), Error> {
    let path = directory.file(TEXT);
    let text = File::create(&path).step(path.display())?;
    let mut command = tools::command("perf");
    command.args(["script", "--header", "-F", "+pid", "--no-inline", "-i"]);
    // Warnings stay on standard error, out of the samples.
    command.arg(directory.file(DATA)).stdout(text);
    tools::run("perf script", command)?;
    directory.remove(DATA)
}
