//! The options of a profile.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use convoy_lab::Pid;

use super::daemon::Daemon;

/// The arguments of `convoy profile`.
#[derive(Debug, Clone, Args)]
pub struct ProfileArgs {
    /// The interface for which the daemon was started
    #[arg(value_name = "IFACE")]
    interface: Option<String>,

    /// The process of a daemon, of `convoy forward` or of `convoy up --userspace`, in any network namespace; its children
    /// that execute the same program are observed, too
    #[arg(long, value_name = "PID", conflicts_with = "interface")]
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Record nothing; read this output of `perf script -F +pid` instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interface", "pid"])]
    pub(super) read: Option<PathBuf>,

    /// Seconds that each of the three tools observes the daemon
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    secs: u32,

    /// Output directory; must be empty or not exist yet
    #[arg(long, value_name = "DIR", default_value = "convoy-profile")]
    pub(super) out: PathBuf,

    /// Compare with the profile in this directory: writes flamegraph-diff.svg, and both shares in report.md
    #[arg(long, value_name = "DIR")]
    pub(super) compare: Option<PathBuf>,

    /// How to find callers: `dwarf` works without frame pointers, but is slow
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CallGraph::Fp)]
    pub(super) call_graph: CallGraph,
}

/// How to find callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CallGraph {
    /// By frame pointers, with which the program must have been built
    Fp,
    /// By debug information, from 16 KiB of each stack
    Dwarf,
}

impl ProfileArgs {
    pub(super) fn daemons(&self) -> Result<Vec<Daemon>> {
        match (&self.interface, self.pid) {
            (Some(interface), _) => Ok(vec![Daemon::of_interface(interface)?]),
            (None, Some(pid)) => Daemon::of_process(Pid::from_raw(pid)),
            (None, None) => bail!("which daemon? Give IFACE, or --pid PID; or --read FILE"),
        }
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.secs.into())
    }
}
