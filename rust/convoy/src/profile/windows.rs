//! One tool after the other looks at daemons that somebody keeps busy.

use std::path::Path;

use anyhow::Context as _;
use convoy_lab::Pid;
use convoy_perf::{Attached, CallGraph, Directory, Profiler, Window};

use super::{Daemon, interrupt};

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Where to write.
    pub(crate) out: &'a Path,
    /// The directory of the profile to compare with.
    pub(crate) before: Option<&'a Path>,
    pub(crate) call_graph: CallGraph,
}

/// A profile of daemons of which each carries all traffic: one, or the two ends of a tunnel.
pub(crate) struct Profile<'a> {
    daemons: Vec<Daemon>,
    profiler: Profiler,
    out: &'a Path,
}

impl<'a> Profile<'a> {
    pub(crate) fn new(daemons: Vec<Daemon>, request: &Request<'a>) -> anyhow::Result<Self> {
        let pids: Vec<Pid> = daemons.iter().map(Daemon::pid).collect();
        let Request {
            out,
            before,
            call_graph,
        } = *request;
        let directory = Directory::open(out)?;
        interrupt::discard(directory.unfinished().clone())?;
        let profiler = Profiler::new(&pids, directory, before, call_graph)?;
        if profiler.event() != "cycles" {
            eprintln!(
                "this machine does not count cycles; {} is recorded instead",
                profiler.event()
            );
        }
        Ok(Self {
            daemons,
            profiler,
            out,
        })
    }

    /// Lets a tool look while `load` runs, and hands out what that returns.
    pub(crate) fn look<T>(
        &mut self,
        window: Window,
        load: impl FnOnce(&mut Attached) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut attached = self.profiler.attach(window)?;
        let before = self.bytes_carried();
        let outcome = load(&mut attached)?;
        let after = self.bytes_carried();
        let bytes = after
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before));
        // What passes a tunnel is carried by each of its ends.
        let gigabytes = bytes.map(|bytes| bytes as f64 / 1e9 / self.daemons.len() as f64);
        self.profiler.finish(attached, gigabytes)?;
        Ok(outcome)
    }

    /// Writes the report about `what`, and says where it is.
    pub(crate) fn report(self, what: &str) -> anyhow::Result<()> {
        let written = self.profiler.report(what);
        written.context("read what was recorded")?;
        say_where(self.out);
        Ok(())
    }

    /// By all daemons, both ways; none where one does not say.
    fn bytes_carried(&self) -> Option<u64> {
        self.daemons.iter().map(Daemon::bytes_carried).sum()
    }
}

/// Tells the user where the profile is.
pub(super) fn say_where(out: &Path) {
    eprintln!(
        "the profile is in {0}: read {0}/report.md first",
        out.display()
    );
}
