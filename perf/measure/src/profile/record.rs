//! `perf record` and `perf script`: samples of the running functions.

use std::{fs::File, process::Command};

use anyhow::{Context as _, Result};

use super::args::CallGraph;
use super::directory::Directory;
use super::tool::{self, Subject, Tool};

pub(super) const NAME: &str = "perf record";
pub(super) const TOOL: Tool = Tool {
    name: NAME,
    progress: "recording (perf record)",
    command,
    is_attached: tool::has_confirmed,
};
/// The recording as text.
pub(super) const TEXT: &str = "profile.perf";
/// The best event first. Virtual machines often have no cycle counter; most record cpu-clock by themselves then.
pub(super) const EVENTS: [&str; 2] = ["cycles", "cpu-clock"];
/// Samples per second of CPU time; odd, to stay out of step with periodic work.
const FREQUENCY: &str = "9973";
/// The recording in `perf`'s own format.
const DATA: &str = "perf.data";

fn command(subject: &Subject) -> Result<Command> {
    // Otherwise perf would rename and keep an old recording.
    subject.directory.remove(DATA)?;
    let call_graph = match subject.call_graph {
        CallGraph::Fp => "fp",
        CallGraph::Dwarf => "dwarf,16384",
    };
    let what = ["record", "--event", subject.event];
    let how = ["--freq", FREQUENCY, "--call-graph", call_graph];
    Ok(tool::perf(subject, &[&what[..], &how].concat(), DATA))
}

pub(super) fn write_text(directory: &Directory) -> Result<()> {
    let path = directory.file(TEXT);
    let text = File::create(&path).with_context(|| path.display().to_string())?;
    let mut command = tool::command("perf");
    command.args(["script", "--header", "-F", "+pid", "--no-inline", "-i"]);
    // Warnings stay on standard error, out of the samples.
    let output = command.arg(directory.file(DATA)).stdout(text).output();
    let output = output.map_err(|error| tool::failed("perf script", &error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(tool::failed("perf script", &said));
    }
    directory.remove(DATA)
}
