//! `convoy profile`: where a daemon or a forwarder spends CPU time, and which system calls it makes.
//!
//! Three tools observe the daemon one after another, because each disturbs the next (`TOOLS`). `perf/README.md` describes
//! the files that they and this program write.
//!
//! 1. `args`, `daemon`: find the requested daemon.
//! 2. `directory`: choose where to write, and remove an unfinished profile.
//! 3. `tool`, `attach`: run a tool from start to end: `stat`, `record`, `syscalls`.
//! 4. `stacks`, `groups`: parse the samples and classify their work.
//! 5. `flame_graph`, `shares`, `report`: write the result.

mod args;
mod attach;
mod daemon;
mod directory;
mod findings;
mod flame_graph;
mod groups;
mod record;
mod report;
mod shares;
mod stacks;
mod stat;
mod syscalls;
mod tool;

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use convoy_lab::{Pid, measure::process::is_alive};

use attach::Attachment;
use findings::Findings;
use tool::{Subject, Tool};

pub use args::{CallGraph, ProfileArgs};
pub(crate) use daemon::Daemon;
pub(crate) use directory::Directory;
pub use stacks::Stacks;

/// All tools, the least disturbing first.
pub(crate) const TOOLS: [Tool; 3] = [stat::TOOL, record::TOOL, syscalls::TOOL];

/// Profiles a running daemon, or reads an earlier recording, and prints where the result is.
///
/// # Errors
///
/// If there is no such daemon, a tool is missing or lacks permission, the daemon ends, or the directory
/// cannot be written. The message includes the fix.
pub fn run(args: &ProfileArgs) -> Result<()> {
    let before = args.compare.as_deref();
    if let Some(text) = &args.read {
        return read(text, &args.out, before);
    }
    let daemons = args.daemons()?;
    let what: Vec<_> = daemons.iter().map(Daemon::to_string).collect();
    let mut profiler = Profiler::new(daemons, &args.out, before, args.call_graph)?;
    profiler.observe(|progress, attachment| {
        eprintln!("{progress} …");
        attachment.watch(args.window())
    })?;
    profiler.report(what.join(", "))
}

fn read(text: &Path, out: &Path, before: Option<&Path>) -> Result<()> {
    let directory = Directory::open(out)?;
    let copy = directory.file(record::TEXT);
    let findings = Findings {
        what: text.display().to_string(),
        stacks: Stacks::of_file(text)?,
        before: before.map(stacks_of).transpose()?,
        ..Findings::default()
    };
    fs::copy(text, &copy).with_context(|| copy.display().to_string())?;
    write(directory, &findings)
}

/// A profile of daemons that each carry all of the traffic: a single one, or both ends of a tunnel.
pub(crate) struct Profiler {
    daemons: Vec<Daemon>,
    subject: Subject,
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
    ) -> Result<Self> {
        let pids: Vec<Pid> = daemons.iter().map(|daemon| daemon.pid).collect();
        let directory = Directory::open(out)?;
        tool::require("perf")?;
        tool::require("strace")?;
        if let Some(&pid) = pids.iter().find(|&&pid| !is_alive(pid)) {
            return Err(attach::daemon_ended(pid));
        }
        let mut profiler = Self {
            daemons,
            subject: Subject {
                pids: pids.clone(),
                directory,
                event: record::EVENTS[0],
                call_graph,
            },
            findings: Findings {
                pids,
                before: before.map(stacks_of).transpose()?,
                note: tool::note(),
                ..Findings::default()
            },
        };
        let recorded = profiler.attach(&record::TOOL).and_then(Attachment::finish);
        if recorded.is_err() {
            profiler.subject.event = record::EVENTS[1];
        }
        for tool in &TOOLS {
            profiler.attach(tool)?.finish()?;
        }
        Ok(profiler)
    }

    /// Runs `load` beside each tool, whose line of progress it gets; returns its outcomes.
    pub(crate) fn observe<T>(
        &mut self,
        mut load: impl FnMut(&'static str, &mut Attachment) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut outcomes = Vec::new();
        for tool in &TOOLS {
            let mut attachment = self.attach(tool)?;
            let before = self.bytes_carried();
            outcomes.push(load(tool.progress, &mut attachment)?);
            let bytes = self.bytes_carried().zip(before);
            let bytes = bytes.map(|(after, before)| after.saturating_sub(before));
            // Each packet passes both ends of the tunnel.
            let gigabytes = bytes.map(|bytes| bytes as f64 / 1e9 / self.daemons.len() as f64);
            attachment.finish()?;
            self.read(tool, gigabytes)?;
        }
        Ok(outcomes)
    }

    /// Writes the report about `what`, and prints where it is.
    pub(crate) fn report(mut self, what: String) -> Result<()> {
        self.findings.what = what;
        let directory = self.subject.directory;
        self.findings.stacks = stacks_of(directory.path()).context("read the recording")?;
        write(directory, &self.findings)
    }

    fn attach(&self, tool: &Tool) -> Result<Attachment> {
        let subject = &self.subject;
        // Each time again, as it lasts a minute.
        subject.pids.iter().copied().for_each(daemon::admit);
        let attached = Attachment::start(tool, || (tool.command)(subject), &subject.pids);
        // On a full disk, perf ends without a word.
        attached.or_else(|error| subject.directory.probe().and(Err(error)))
    }

    /// Reads what a tool has written, given the gigabytes that passed through the tunnel meanwhile.
    fn read(&mut self, tool: &Tool, gigabytes: Option<f64>) -> Result<()> {
        let (directory, findings) = (&self.subject.directory, &mut self.findings);
        match tool.name {
            stat::NAME => findings.stat = Some(stat::read(directory)?),
            record::NAME => record::write_text(directory)?,
            _ => findings.syscalls = Some(syscalls::read(directory, gigabytes)?),
        }
        Ok(())
    }

    /// By all daemons, in both directions; `None` if one of them does not report it.
    fn bytes_carried(&self) -> Option<u64> {
        self.daemons.iter().map(Daemon::bytes_carried).sum()
    }
}

/// The samples of the profile in `directory`.
fn stacks_of(directory: &Path) -> Result<Stacks> {
    Stacks::of_file(&directory.join(record::TEXT))
}

fn write(directory: Directory, findings: &Findings) -> Result<()> {
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
