//! A profile from its beginning to its end.

use std::{fs, path::Path, time::Duration};

use convoy_lab::Pid;

use crate::{
    Directory, ProfileError, Stacks,
    attach::{Attachment, is_alive},
    flame_graph, permission,
    record::{self, Recorder},
    report::{self, Findings},
    shares,
    stat::{self, Stat},
    syscalls::{self, Syscalls},
    tools,
};

/// What looks at the daemons, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// `perf stat`, which costs nothing.
    Counters,
    /// `perf record`, which costs a few percent.
    Samples,
    /// `strace -c`, under which the daemons are several times slower.
    Syscalls,
}

/// How the callers of a function are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallGraph {
    /// By frame pointers, which the program must have been built with.
    FramePointers,
    /// By debug information, from 16 KiB of each stack: slow, large, and without frame pointers.
    Dwarf,
}

/// A profile of running daemons, in a directory of its own.
#[derive(Debug)]
pub struct Profiler {
    directory: Directory,
    pids: Vec<Pid>,
    recorder: Recorder,
    before: Option<Stacks>,
    stat: Option<Stat>,
    syscalls: Option<Syscalls>,
}

/// A tool that looks at the daemons.
#[derive(Debug)]
pub struct Attached {
    window: Window,
    attachment: Attachment,
}

impl Window {
    /// All, in the order in which they disturb.
    pub const ALL: [Self; 3] = [Self::Counters, Self::Samples, Self::Syscalls];

    /// For people: what is done.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counters => "counting (perf stat)",
            Self::Samples => "recording (perf record)",
            Self::Syscalls => "counting system calls (strace -c)",
        }
    }
}

impl CallGraph {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FramePointers => "fp",
            Self::Dwarf => "dwarf,16384",
        }
    }
}

impl Profiler {
    /// Prepares a profile of the processes `pids` in `directory`; it will be compared with the profile
    /// that the directory `before` holds.
    ///
    /// Everything that may be missing is tried here: each tool looks at the daemons for a moment.
    ///
    /// # Errors
    ///
    /// When a tool is not installed or may not look, no event can be recorded, or `before` holds no
    /// profile.
    pub fn new(
        pids: &[Pid],
        directory: Directory,
        before: Option<&Path>,
        call_graph: CallGraph,
    ) -> Result<Self, ProfileError> {
        tools::require("perf")?;
        tools::require("strace")?;
        if let Some(pid) = pids.iter().find(|&&pid| !is_alive(pid)) {
            return Err(ProfileError::Ended { pid: pid.as_raw() });
        }
        let before = before.map(|directory| Stacks::of_file(&directory.join(record::TEXT)));
        let before = before.transpose()?;
        let recorder = Recorder::find(&directory, pids, call_graph)?;
        let profiler = Self {
            directory,
            pids: pids.to_vec(),
            recorder,
            before,
            stat: None,
            syscalls: None,
        };
        for window in Window::ALL {
            profiler.attach(window)?.attachment.finish()?;
        }
        Ok(profiler)
    }

    /// The event whose samples are recorded.
    pub fn event(&self) -> &'static str {
        self.recorder.event()
    }

    /// Lets a tool look at the daemons from now on.
    ///
    /// # Errors
    ///
    /// When the tool fails, or a daemon has ended.
    pub fn attach(&self, window: Window) -> Result<Attached, ProfileError> {
        let (directory, pids) = (&self.directory, &self.pids[..]);
        let attachment = match window {
            Window::Counters => stat::attach(directory, pids),
            Window::Samples => self.recorder.attach(directory, pids),
            Window::Syscalls => syscalls::attach(directory, pids),
        }?;
        Ok(Attached { window, attachment })
    }

    /// Ends what a tool does. `gigabytes` is what went through the tunnel meanwhile, in 10⁹ bytes.
    ///
    /// # Errors
    ///
    /// When the tool failed, or a daemon ended.
    pub fn finish(
        &mut self,
        attached: Attached,
        gigabytes: Option<f64>,
    ) -> Result<(), ProfileError> {
        attached.attachment.finish()?;
        match attached.window {
            Window::Counters => self.stat = Some(stat::write(&self.directory)?),
            Window::Samples => Recorder::write_text(&self.directory)?,
            Window::Syscalls => self.syscalls = Some(syscalls::write(&self.directory, gigabytes)?),
        }
        Ok(())
    }

    /// Draws and writes what the windows have found; `what` says what was profiled.
    ///
    /// # Errors
    ///
    /// When nothing was recorded, or a file cannot be written.
    pub fn report(self, what: &str) -> Result<(), ProfileError> {
        let stacks = Stacks::of_file(&self.directory.file(record::TEXT))?;
        let findings = Findings {
            what,
            stacks: &stacks,
            before: self.before.as_ref(),
            notes: permission::notes(),
            stat: self.stat.as_ref(),
            syscalls: self.syscalls.as_ref(),
        };
        let pids: Vec<_> = self
            .pids
            .iter()
            .map(|pid| pid.as_raw().cast_unsigned())
            .collect();
        write(self.directory, &findings, Some(&pids))
    }
}

impl Attached {
    /// Lets the tool look for `time`.
    ///
    /// # Errors
    ///
    /// When the tool or a daemon ends before.
    pub fn watch(&mut self, time: Duration) -> Result<(), ProfileError> {
        self.attachment.watch(time)
    }
}

/// Reads a text of `perf script`, and writes it with flame graphs and a report into `directory`.
///
/// # Errors
///
/// When the text is none, with the line; or `before` holds no profile.
pub fn read(text: &Path, directory: Directory, before: Option<&Path>) -> Result<(), ProfileError> {
    let stacks = Stacks::of_file(text)?;
    let before = before.map(|directory| Stacks::of_file(&directory.join(record::TEXT)));
    let before = before.transpose()?;
    let copy = directory.file(record::TEXT);
    fs::copy(text, &copy).map_err(ProfileError::file(copy))?;
    let findings = Findings {
        what: &text.display().to_string(),
        stacks: &stacks,
        before: before.as_ref(),
        notes: Vec::new(),
        stat: None,
        syscalls: None,
    };
    write(directory, &findings, None)
}

fn write(
    directory: Directory,
    findings: &Findings<'_>,
    pids: Option<&[u32]>,
) -> Result<(), ProfileError> {
    flame_graph::draw(findings.stacks, &directory.file(flame_graph::FILE))?;
    if let Some(before) = findings.before {
        let path = directory.file(flame_graph::DIFFERENCE_FILE);
        flame_graph::draw_difference(before, findings.stacks, &path)?;
    }
    shares::write(&directory, findings, pids)?;
    directory.write(report::FILE, report::text(findings).as_bytes())?;
    directory.keep();
    Ok(())
}
