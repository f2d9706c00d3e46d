//! Looks into running daemons: where their CPU time goes, and what they ask of the kernel.
//!
//! 1. [`Directory::open`]: where to write.
//! 2. [`Profiler::new`] finds the tools, and an event that works, before any load is made.
//! 3. [`Profiler::attach`], once for each of [`Window::ALL`] while the daemons work; then
//!    [`Profiler::finish`]. One after the other: what one tool does would be counted by the next.
//! 4. [`Profiler::report`] reads what was written together.
//!
//! [`read`] does the last step for a text of `perf script` from anywhere.
//!
//! | file | written by | what it is |
//! |---|---|---|
//! | `stat.json` | `stat` | the processor's and the scheduler's counters |
//! | `profile.perf` | `record` | the samples, as Firefox Profiler takes them |
//! | `flamegraph.svg`, `flamegraph-diff.svg` | `flame_graph` | the samples, drawn |
//! | `syscalls.json` | `syscalls` | system calls by name |
//! | `shares.json` | `shares` | shares of the CPU time, for programs |
//! | `report.md` | `report` | these together |
//!
//! Deliberately left out: the load, and what the daemons carried meanwhile, which the caller says.

mod at_work;
mod attach;
mod directory;
mod error;
mod flame_graph;
mod groups;
mod permission;
mod profiler;
mod record;
mod report;
mod samples;
mod shares;
mod stacks;
mod stat;
mod syscalls;
mod tools;

pub use directory::{Directory, Unfinished};
pub use error::{ProfileError, TextError};
pub use groups::Group;
pub use profiler::{Attached, CallGraph, Profiler, Window, read};
pub use samples::{Frame, Sample, Samples};
pub use stacks::Stacks;
