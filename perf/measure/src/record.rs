//! `perf record` and `perf script`: what ran, sample by sample.

use std::{
    fs::{self, File},
    process::Command,
};

use convoy_lab::Pid;

use crate::{
    ProfileError, attach::Attachment, directory::Directory, profiler::CallGraph,
    samples::plain_event, tools,
};

/// Samples a second of running time; odd, so that they do not keep step with what is periodic.
const FREQUENCY: &str = "9973";
/// The recording as `perf` keeps it.
const DATA: &str = "perf.data";
/// The same as text.
pub(crate) const TEXT: &str = "profile.perf";
/// The best event first. Virtual machines often have no counter of cycles.
const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];

/// How to record on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    event: &'static str,
    call_graph: CallGraph,
}

impl Recorder {
    /// Tries which event can be recorded of `pids`: as nothing happens meanwhile, this takes a moment.
    pub(crate) fn find(
        directory: &Directory,
        pids: &[Pid],
        call_graph: CallGraph,
    ) -> Result<Self, ProfileError> {
        let mut refusal = None;
        for event in EVENTS {
            let recorder = Self { event, call_graph };
            directory.remove(DATA)?;
            let mut command = recorder.command(directory, pids);
            command.args(["--", "true"]);
            match tools::run("perf record", command) {
                // It may have taken another event than it was asked for.
                Ok(_) if recorded_event(directory)? == event => return Ok(recorder),
                Ok(_) => {}
                Err(error) => refusal = Some(error),
            }
        }
        let nothing = || {
            tools::failed(
                "perf record",
                "neither cycles nor cpu-clock can be recorded",
            )
        };
        Err(refusal.unwrap_or_else(nothing))
    }

    /// What is counted between two samples.
    pub(crate) fn event(&self) -> &'static str {
        self.event
    }

    pub(crate) fn attach(
        &self,
        directory: &Directory,
        pids: &[Pid],
    ) -> Result<Attachment, ProfileError> {
        // Else it would be kept under another name.
        directory.remove(DATA)?;
        let command = self.command(directory, pids);
        Attachment::start(
            directory.at_work(),
            "perf record",
            command,
            pids,
            has_events,
        )
    }

    /// Writes the recording as text.
    pub(crate) fn write_text(directory: &Directory) -> Result<(), ProfileError> {
        let path = directory.file(TEXT);
        let text = File::create(&path).map_err(ProfileError::file(path))?;
        let mut command = tools::command("perf");
        command.args(["script", "--header", "-F", "+pid", "--no-inline", "-i"]);
        command.arg(directory.file(DATA));
        // Warnings go elsewhere: between the samples they would make the text another one.
        command.stdout(text);
        tools::run("perf script", command)?;
        directory.remove(DATA)
    }

    fn command(&self, directory: &Directory, pids: &[Pid]) -> Command {
        let mut command = tools::command("perf");
        command.args([
            "record", "--quiet", "--event", self.event, "--freq", FREQUENCY,
        ]);
        command.args(["--call-graph", self.call_graph.name()]);
        command.args(["--pid", &list(pids), "--output"]);
        command.arg(directory.file(DATA));
        command
    }
}

/// The processes as `perf` takes them.
pub(crate) fn list(pids: &[Pid]) -> String {
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    pids.join(",")
}

/// Whether the tool has opened its counters, which then count. Where it does not let us look, it is
/// taken at its word.
pub(crate) fn has_events(tool: Pid) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{tool}/fd")) else {
        return true;
    };
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let mut counters = targets.filter(|target| target.to_string_lossy().contains("[perf_event]"));
    counters.next().is_some()
}

fn recorded_event(directory: &Directory) -> Result<String, ProfileError> {
    let mut command = tools::command("perf");
    command.args(["evlist", "-i"]).arg(directory.file(DATA));
    let output = tools::run("perf evlist", command)?;
    let names = String::from_utf8_lossy(&output.stdout);
    let first = names.lines().find(|line| !line.starts_with('#'));
    Ok(plain_event(first.unwrap_or_default().trim()).to_owned())
}
