//! `convoy profile`: where a daemon or a forwarder spends CPU time, and which system calls it makes.
//!
//! Three tools observe the daemon one after another, because each disturbs the next (`Window`):
//!
//! | file | written by | contents |
//! |---|---|---|
//! | `stat.json` | `stat` | counters of the processor and the scheduler |
//! | `profile.perf` | `record` | the samples in a form that Firefox Profiler loads |
//! | `flamegraph.svg`, `flamegraph-diff.svg` | `flame_graph` | the samples as a picture |
//! | `syscalls.json` | `syscalls` | system calls by name |
//! | `shares.json` | `shares` | shares of the CPU time, machine-readable |
//! | `report.md` | `report` | all of these, interpreted |
//!
//! 1. `args`, `daemon`: find the requested daemon.
//! 2. `directory`, `unfinished`: choose where to write, and remove an unfinished profile.
//! 3. `request`, `attach`, `tools`, `permission`: run a tool from start to end.
//! 4. `stacks`, `groups`: parse the samples and classify their work.

mod args;
mod attach;
mod daemon;
mod directory;
mod findings;
mod flame_graph;
mod groups;
mod permission;
mod record;
mod report;
mod request;
mod shares;
mod stacks;
mod stat;
mod syscalls;
mod tools;
mod unfinished;

use std::{fs, path::Path};

use convoy_lab::{Pid, measure::process::is_alive};

use crate::{Error, error::Step as _};
use attach::Attachment;
use findings::Findings;
use record::Recorder;

pub use args::{CallGraph, ProfileArgs};
pub(crate) use daemon::Daemon;
pub(crate) use directory::Directory;
pub use stacks::Stacks;

/// Profiles a running daemon, or reads an earlier recording, and prints where the result is.
///
/// # Errors
///
/// If there is no such daemon, a tool is missing or lacks permission, the daemon ends, or the directory
/// cannot be written. The message includes the fix.
pub fn run(args: &ProfileArgs) -> Result<(), Error> {
    let before = args.compare.as_deref();
    if let Some(text) = &args.read {
        return read(text, &args.out, before);
    }
    let daemons = args.daemons()?;
    let what: Vec<_> = daemons.iter().map(Daemon::to_string).collect();
    let mut profiler = Profiler::new(daemons, &args.out, before, args.call_graph)?;
    for window in Window::ALL {
        eprintln!("{} …", window.name());
        profiler.look(window, |attachment| attachment.watch(args.window()))?;
    }
    profiler.report(what.join(", "))
}

fn read(text: &Path, out: &Path, before: Option<&Path>) -> Result<(), Error> {
    let directory = Directory::open(out)?;
    let copy = directory.file(record::TEXT);
    let findings = Findings {
        what: text.display().to_string(),
        stacks: Stacks::of_file(text)?,
        before: before.map(stacks_of).transpose()?,
        ..Findings::default()
    };
    fs::copy(text, &copy).step(copy.display())?;
    write(directory, &findings)
}

/// A tool, and when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    /// `perf stat`, which costs next to nothing.
    Counters,
    /// `perf record`, which costs a few percent.
    Samples,
    /// `strace -c`, which makes the daemons several times slower.
    Syscalls,
}

impl Window {
    /// All tools, the least disturbing first.
    pub(crate) const ALL: [Self; 3] = [Self::Counters, Self::Samples, Self::Syscalls];

    /// The progress line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counters => "counting (perf stat)",
            Self::Samples => "recording (perf record)",
            Self::Syscalls => "counting system calls (strace -c)",
        }
    }
}

/// A profile of daemons that each carry all of the traffic: a single one, or both ends of a tunnel.
pub(crate) struct Profiler {
    daemons: Vec<Daemon>,
    directory: Directory,
    recorder: Recorder,
    findings: Findings,
}

impl Profiler {
    /// Prepares a profile in the directory `out`, to compare with the one in `before`.
    ///
    /// Each tool runs briefly, so that a missing tool or permission shows before the load starts.
    pub(crate) fn new(
        daemons: Vec<Daemon>,
        out: &Path,
        before: Option<&Path>,
        call_graph: CallGraph,
    ) -> Result<Self, Error> {
        let pids: Vec<Pid> = daemons.iter().map(Daemon::pid).collect();
        let directory = Directory::open(out)?;
        tools::require("perf")?;
        tools::require("strace")?;
        if let Some(&pid) = pids.iter().find(|&&pid| !is_alive(pid)) {
            return Err(attach::daemon_ended(pid));
        }
        daemons.iter().for_each(Daemon::admit);
        let profiler = Self {
            daemons,
            recorder: Recorder::find(&directory, &pids, call_graph.perf_name())?,
            directory,
            findings: Findings {
                pids,
                before: before.map(stacks_of).transpose()?,
                note: permission::note(),
                ..Findings::default()
            },
        };
        for window in Window::ALL {
            profiler.attach(window)?.finish()?;
        }
        Ok(profiler)
    }

    /// Runs a tool while `load` runs, and returns the load's outcome.
    pub(crate) fn look<T>(
        &mut self,
        window: Window,
        load: impl FnOnce(&mut Attachment) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attachment = self.attach(window)?;
        let before = self.bytes_carried();
        let outcome = load(&mut attachment)?;
        let bytes = self.bytes_carried().zip(before);
        let bytes = bytes.map(|(after, before)| after.saturating_sub(before));
        // Each packet passes both ends of the tunnel.
        let gigabytes = bytes.map(|bytes| bytes as f64 / 1e9 / self.daemons.len() as f64);
        attachment.finish()?;
        let (directory, findings) = (&self.directory, &mut self.findings);
        match window {
            Window::Counters => findings.stat = Some(stat::write(directory)?),
            Window::Samples => record::write_text(directory)?,
            Window::Syscalls => findings.syscalls = Some(syscalls::write(directory, gigabytes)?),
        }
        Ok(outcome)
    }

    /// Writes the report about `what`, and prints where it is.
    pub(crate) fn report(mut self, what: String) -> Result<(), Error> {
        self.findings.what = what;
        self.findings.stacks = stacks_of(self.directory.path()).step("read the recording")?;
        write(self.directory, &self.findings)
    }

    fn attach(&self, window: Window) -> Result<Attachment, Error> {
        let (directory, pids) = (&self.directory, &self.findings.pids[..]);
        // Each time again, as it lasts a minute.
        self.daemons.iter().for_each(Daemon::admit);
        match window {
            Window::Counters => {
                let command = stat::command(directory, pids);
                Attachment::start(stat::WHAT, command, pids, tools::has_events)
            }
            Window::Samples => {
                let command = self.recorder.command(directory, pids)?;
                Attachment::start("perf record", command, pids, tools::has_events)
            }
            Window::Syscalls => {
                let command = syscalls::command(directory, pids);
                Attachment::start(syscalls::WHAT, command, pids, syscalls::is_attached)
            }
        }
    }

    /// By all daemons, in both directions; `None` if one of them does not report it.
    fn bytes_carried(&self) -> Option<u64> {
        self.daemons.iter().map(Daemon::bytes_carried).sum()
    }
}

/// The samples of the profile in `directory`.
fn stacks_of(directory: &Path) -> Result<Stacks, Error> {
    Stacks::of_file(&directory.join(record::TEXT))
}

fn write(directory: Directory, findings: &Findings) -> Result<(), Error> {
    flame_graph::draw(&findings.stacks, &directory.file(flame_graph::FILE))?;
    if let Some(before) = &findings.before {
        let path = directory.file(flame_graph::DIFFERENCE_FILE);
        flame_graph::draw_difference(before, &findings.stacks, &path)?;
    }
    shares::write(&directory, findings)?;
    directory.write(report::FILE, report::text(findings).as_bytes())?;
    let out = directory.path().display();
    eprintln!("the profile is in {out}: read {out}/report.md first");
    directory.keep();
    Ok(())
}
