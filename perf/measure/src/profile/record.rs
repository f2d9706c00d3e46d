//! `perf record` and `perf script`: the running functions, sample by sample.

use std::{
    fs::{self, File},
    process::Command,
};

use convoy_lab::Pid;

use super::{attach::Attachment, directory::Directory, stacks::plain_event, tools};
use crate::Error;

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
    pub(super) fn find(
        directory: &Directory,
        pids: &[Pid],
        call_graph: &'static str,
    ) -> Result<Self, Error> {
        let nothing = "neither cycles nor cpu-clock can be recorded";
        let mut refusal = tools::failed("perf record", nothing);
        for event in EVENTS {
            let recorder = Self { event, call_graph };
            directory.remove(DATA)?;
            let mut command = recorder.command(directory, pids);
            command.args(["--", "true"]);
            match tools::run("perf record", command) {
                // perf may have taken another event instead.
                Ok(_) if recorded_event(directory)? == event => return Ok(recorder),
                Ok(_) => {}
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// The event that is counted between two samples.
    pub(super) fn event(&self) -> &'static str {
        self.event
    }

    pub(super) fn attach(&self, directory: &Directory, pids: &[Pid]) -> Result<Attachment, Error> {
        // perf would keep a former recording under another name.
        directory.remove(DATA)?;
        let command = self.command(directory, pids);
        Attachment::start(
            directory.unfinished(),
            "perf record",
            command,
            pids,
            has_events,
        )
    }

    /// Writes the recording as text.
    pub(super) fn write_text(directory: &Directory) -> Result<(), Error> {
        let path = directory.file(TEXT);
        let text = File::create(&path).map_err(Error::file(path))?;
        let mut command = tools::command("perf");
        command.args(["script", "--header", "-F", "+pid", "--no-inline", "-i"]);
        // Warnings stay on the standard error, out of the samples.
        command.arg(directory.file(DATA)).stdout(text);
        tools::run("perf script", command)?;
        directory.remove(DATA)
    }

    fn command(&self, directory: &Directory, pids: &[Pid]) -> Command {
        let mut command = tools::command("perf");
        command.args([
            "record", "--quiet", "--event", self.event, "--freq", FREQUENCY,
        ]);
        command.args([
            "--call-graph",
            self.call_graph,
            "--pid",
            &list(pids),
            "--output",
        ]);
        command.arg(directory.file(DATA));
        command
    }
}

/// The processes as `perf` takes them.
pub(super) fn list(pids: &[Pid]) -> String {
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    pids.join(",")
}

/// Whether the tool has opened its counters, which then count. A tool that does not let us look counts as
/// ready.
pub(super) fn has_events(tool: Pid) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{tool}/fd")) else {
        return true;
    };
    let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.any(|target| target.to_string_lossy().contains("[perf_event]"))
}

fn recorded_event(directory: &Directory) -> Result<String, Error> {
    let mut command = tools::command("perf");
    command.args(["evlist", "-i"]).arg(directory.file(DATA));
    let output = tools::run("perf evlist", command)?;
    let names = String::from_utf8_lossy(&output.stdout);
    let first = names.lines().find(|line| !line.starts_with('#'));
    Ok(plain_event(first.unwrap_or_default().trim()).to_owned())
}
