//! What can be asked of a profile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use convoy_lab::Pid;

use crate::cli::InterfaceName;

use super::windows::Request;

/// The arguments of `convoy profile`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProfileArgs {
    /// The interface that the daemon was started for
    #[arg(value_name = "IFACE")]
    interface: Option<InterfaceName>,

    /// The daemon's process, in any network namespace
    #[arg(long, value_name = "PID", conflicts_with = "interface")]
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Record nothing: read this text of `perf script -F +pid`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interface", "pid"])]
    read: Option<PathBuf>,

    /// Seconds that each of the three tools looks at the daemon
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    secs: u32,

    /// Where to write; must be empty, or not there yet
    #[arg(long, value_name = "DIR", default_value = "convoy-profile")]
    pub(super) out: PathBuf,

    /// Compare with the profile in this directory: flamegraph-diff.svg, and both shares in report.md
    #[arg(long, value_name = "DIR")]
    pub(super) compare: Option<PathBuf>,

    /// How callers are found: `dwarf` works without frame pointers, but is slow
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CallGraph::Fp)]
    call_graph: CallGraph,
}

/// What is to be looked into.
#[derive(Debug, PartialEq)]
pub(super) enum Target<'a> {
    Interface(&'a InterfaceName),
    Process(Pid),
    Text(&'a Path),
}

/// How callers are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallGraph {
    /// By frame pointers, which the program must have been built with
    Fp,
    /// By debug information, from 16 KiB of each stack
    Dwarf,
}

impl ProfileArgs {
    pub(super) fn target(&self) -> anyhow::Result<Target<'_>> {
        match (&self.interface, self.pid, &self.read) {
            (Some(interface), ..) => Ok(Target::Interface(interface)),
            (_, Some(pid), _) => Ok(Target::Process(Pid::from_raw(pid))),
            (.., Some(text)) => Ok(Target::Text(text)),
            (None, None, None) => bail!("which daemon? Give IFACE, or --pid PID; or --read FILE"),
        }
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_secs(self.secs.into())
    }

    pub(super) fn request(&self) -> Request<'_> {
        Request {
            out: &self.out,
            before: self.compare.as_deref(),
            call_graph: self.call_graph.into(),
        }
    }
}

impl From<CallGraph> for convoy_perf::CallGraph {
    fn from(how: CallGraph) -> Self {
        match how {
            CallGraph::Fp => Self::FramePointers,
            CallGraph::Dwarf => Self::Dwarf,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ProfileArgs,
    }

    fn parse(line: &str) -> Result<ProfileArgs, clap::Error> {
        let words = std::iter::once("profile").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args)
    }

    #[test]
    fn a_daemon_is_named_by_its_interface_or_its_process_or_a_text_is_read() {
        let interface = "wg0".parse().unwrap();
        let args = parse("wg0").unwrap();
        assert_eq!(args.target().unwrap(), Target::Interface(&interface));
        let args = parse("--pid 12").unwrap();
        assert_eq!(args.target().unwrap(), Target::Process(Pid::from_raw(12)));
        let args = parse("--read a.perf").unwrap();
        assert_eq!(args.target().unwrap(), Target::Text(Path::new("a.perf")));
        assert!(parse("").unwrap().target().is_err());
        for line in [
            "wg0 --pid 12",
            "wg0 --read a",
            "--pid 12 --read a",
            "--pid 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_profile_takes_ten_seconds_a_tool_and_frame_pointers_unless_told() {
        let args = parse("wg0").unwrap();
        assert_eq!(args.window(), Duration::from_secs(10));
        let request = args.request();
        assert_eq!(request.out, Path::new("convoy-profile"));
        assert_eq!(request.call_graph, convoy_perf::CallGraph::FramePointers);
        let args = parse("wg0 --secs 3 --call-graph dwarf --compare old").unwrap();
        assert_eq!(args.window(), Duration::from_secs(3));
        assert_eq!(args.request().before, Some(Path::new("old")));
        assert_eq!(args.request().call_graph, convoy_perf::CallGraph::Dwarf);
    }
}
