//! perf and strace: whether they are installed, and how to start them.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use convoy_lab::Pid;
use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{SigHandler, Signal, signal},
    },
    unistd::{getpid, getppid},
};

use super::permission;
use crate::Error;

/// Fails if `program` does not run; names the packages that install it.
///
/// Ubuntu installs `perf` without the part for the running kernel, so this runs it.
pub(super) fn require(program: &'static str) -> Result<(), Error> {
    match command(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(program, error.to_string()))
        }
        _ => Err(Error::Refused(format!(
            "{program} is not installed, or not for this kernel (fix: `sudo apt-get install strace linux-perf`; \
             on Ubuntu, linux-tools-common and linux-tools-$(uname -r) instead of linux-perf; elsewhere \
             strace and perf)"
        ))),
    }
}

/// A command that dies with this process, and formats numbers the same in every locale.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let parent = getpid();
    let prepare = move || {
        // SIGINT stops a tool; a script's background job would ignore it.
        // SAFETY: no handler is left behind that would have to be safe.
        unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }?;
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    };
    // SAFETY: signal(2), prctl(2) and getppid(2) are async-signal-safe, as required of a forked child.
    unsafe { command.pre_exec(prepare) };
    command
}

/// Runs `command` to completion; on failure, its standard error is the reason.
pub(super) fn run(what: &str, mut command: Command) -> Result<(), Error> {
    let output = command.output();
    let output = output.map_err(|error| failed(what, error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(what, String::from_utf8_lossy(&output.stderr))),
    }
}

/// `what` failed for the reason that it `said`.
pub(super) fn failed(what: &str, said: impl AsRef<str>) -> Error {
    let said = said.as_ref().trim();
    let hint = permission::hint(said);
    Error::Refused(format!("{what} failed: {said}{hint}"))
}

/// `tool` wrote a `line` that cannot be parsed.
pub(super) fn unreadable(tool: &str, line: &str) -> Error {
    Error::Refused(format!("cannot parse a line that {tool} wrote: {line}"))
}

/// The processes in the form that `perf` takes.
pub(super) fn list(pids: &[Pid]) -> String {
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    pids.join(",")
}

/// Whether `perf` has opened its counters, which then count. A tool that cannot be inspected counts as ready.
pub(super) fn has_events(tool: Pid, _pids: &[Pid]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{tool}/fd")) else {
        return true;
    };
    let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.any(|target| target.to_string_lossy().contains("[perf_event]"))
}
