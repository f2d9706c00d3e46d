//! `perf record` and `perf script`: the running functions, sample by sample.

use std::{fs::File, process::Command};

use convoy_lab::Pid;

use super::{directory::Directory, tools};
use crate::{Error, error::Step as _};

/// Samples a second of running time; odd, so that they do not keep step with periodic work.
const FREQUENCY: &str = "9973";
/// The recording as `perf` keeps it.
const DATA: &str = "perf.data";
/// The same as text.
pub(super) const TEXT: &str = "profile.perf";
/// The best event first. Virtual machines often have no counter of cycles.
const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];

/// How to record on this machine.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    event: &'static str,
    call_graph: &'static str,
}

impl Recorder {
    /// Tries which event can be recorded of `pids`; it records for a moment.
    ///
    /// Most machines that do not count cycles record cpu-clock for them by themselves.
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
        // perf would keep a former recording under another name.
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
    // Warnings stay on the standard error, out of the samples.
    command.arg(directory.file(DATA)).stdout(text);
    tools::run("perf script", command)?;
    directory.remove(DATA)
}
