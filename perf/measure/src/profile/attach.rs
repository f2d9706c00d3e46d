//! A tool that observes running processes, from the moment it is attached until it is stopped.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use convoy_lab::{Pid, eventually, measure::process::is_alive};
use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    signal::{Signal, kill},
};

use super::{tools, unfinished};
use crate::Error;

/// Time limit for a tool to attach.
const ATTACH_PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for a process that ends to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for writing its result.
const STOP_PATIENCE: Duration = Duration::from_secs(120);

/// A running tool; when dropped, it is killed with all processes that it has started.
#[derive(Debug)]
pub(crate) struct Attachment {
    what: &'static str,
    child: Child,
    pids: Vec<Pid>,
    /// The tool's output apart from its result, which goes to a file.
    said: File,
}

impl Attachment {
    /// Starts `command`, called `what` in messages, and waits until it is attached to all of `pids`, as
    /// `is_attached` reports for the tool and the processes.
    pub(super) fn start(
        what: &'static str,
        mut command: Command,
        pids: &[Pid],
        is_attached: fn(Pid, &[Pid]) -> bool,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| tools::failed(what, error.to_string());
        let said = memfd_create(c"said", MFdFlags::MFD_CLOEXEC);
        let said = File::from(said.map_err(|errno| failed(errno.into()))?);
        let writer = || said.try_clone().map(Stdio::from).map_err(failed);
        let child = unfinished::spawn(command.stdout(writer()?).stderr(writer()?));
        let mut attachment = Self {
            what,
            child: child.map_err(failed)?,
            pids: pids.to_vec(),
            said,
        };
        let tool = attachment.tool();
        let begun = eventually(ATTACH_PATIENCE, || match attachment.ended() {
            Some(status) => Some(Err(attachment.unexpected(status))),
            None => is_attached(tool, pids).then_some(Ok(())),
        });
        match begun {
            Some(outcome) => outcome.map(|()| attachment),
            None => Err(tools::failed(what, "it does not attach")),
        }
    }

    /// Lets the tool run for `time`; fails if the tool or a process ends before that.
    pub(crate) fn watch(&mut self, time: Duration) -> Result<(), Error> {
        let trouble = eventually(time, || match (self.gone(), self.ended()) {
            (Some(pid), _) => Some(daemon_ended(pid)),
            (None, Some(status)) => Some(self.unexpected(status)),
            (None, None) => None,
        });
        trouble.map_or(Ok(()), Err)
    }

    /// Stops the tool and waits until it has written its result.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.watch(Duration::ZERO)?;
        // kill(2) fails only for a process that has already been waited for.
        let _ = kill(self.tool(), Signal::SIGINT);
        let status = eventually(STOP_PATIENCE, || self.ended());
        let status = status.ok_or_else(|| tools::failed(self.what, "it does not end"))?;
        // Some tools die of the signal after writing everything.
        match status.success() || status.signal() == Some(libc::SIGINT) {
            true => Ok(()),
            false => Err(self.unexpected(status)),
        }
    }

    fn tool(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn gone(&self) -> Option<Pid> {
        self.pids.iter().copied().find(|&pid| !is_alive(pid))
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        unfinished::forget(self.tool());
        Some(status)
    }

    fn unexpected(&self, status: ExitStatus) -> Error {
        // A tool may notice an end before all threads have ended.
        if let Some(pid) = eventually(DEATH_PATIENCE, || self.gone()) {
            return daemon_ended(pid);
        }
        let mut said = Vec::new();
        let mut file = &self.said;
        let read = file.rewind().and_then(|()| file.read_to_end(&mut said));
        match read {
            Ok(1..) => tools::failed(self.what, String::from_utf8_lossy(&said)),
            _ => tools::failed(self.what, status.to_string()),
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        unfinished::kill(self.tool());
        // Waiting fails only for a child that has already been waited for.
        let _ = self.child.wait();
        unfinished::forget(self.tool());
    }
}

pub(super) fn daemon_ended(pid: Pid) -> Error {
    Error::Refused(format!(
        "the daemon (process {pid}) ended while it was profiled"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::signal::{SigHandler, signal};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_tool_is_stopped_by_the_signal_that_makes_it_write() {
        // As in a script's background job.
        // SAFETY: this process has no handler for the signal.
        unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }.unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let script = format!(
            "trap 'echo seen > {path}; exit 0' INT; echo > {path}; while :; do sleep 0.01; done"
        );
        let tool = start(&script);
        let begun = || fs::read(file.path()).is_ok_and(|bytes| !bytes.is_empty());
        assert!(eventually(LONG, || begun().then_some(())).is_some());
        tool.finish().unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "seen\n");
    }

    #[test]
    fn a_tool_takes_all_that_it_has_started_with_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 600 & echo $! > {}; wait", file.path().display());
        let tool = start(&script);
        let started = || fs::read_to_string(file.path()).unwrap().trim().parse().ok();
        let sleeper = Pid::from_raw(eventually(LONG, started).unwrap());
        assert!(is_alive(sleeper));
        drop(tool);
        let gone = eventually(LONG, || (!is_alive(sleeper)).then_some(()));
        assert!(gone.is_some());
    }

    fn start(script: &str) -> Attachment {
        let mut command = tools::command("sh");
        command.args(["-c", script]);
        Attachment::start("a shell", command, &[Pid::this()], |_, _| true).unwrap()
    }
}
