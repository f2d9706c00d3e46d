//! A tool that looks at running processes, from when it has begun until it is told to stop.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use convoy_lab::{Pid, eventually};
use nix::sys::{
    memfd::{MFdFlags, memfd_create},
    signal::{Signal, kill},
};

use crate::{ProfileError, at_work::AtWork, tools};

/// How long a tool may take to attach.
const ATTACH_PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to write what it has.
const STOP_PATIENCE: Duration = Duration::from_secs(120);

/// A tool at work; killed when dropped, with all that it has started.
#[derive(Debug)]
pub(crate) struct Attachment {
    what: &'static str,
    child: Child,
    at_work: AtWork,
    pids: Vec<Pid>,
    /// What the tool writes besides what it is asked for, which goes to a file.
    said: File,
}

impl Attachment {
    /// Starts `command`, called `what` in messages, and waits until it looks at all of `pids`.
    pub(crate) fn start(
        at_work: &AtWork,
        what: &'static str,
        mut command: Command,
        pids: &[Pid],
        is_attached: impl Fn(Pid) -> bool,
    ) -> Result<Self, ProfileError> {
        let failed = |error: std::io::Error| tools::failed(what, error.to_string());
        let said = memfd_create(c"said", MFdFlags::MFD_CLOEXEC);
        let said = File::from(said.map_err(|errno| failed(errno.into()))?);
        let writer = || said.try_clone().map(Stdio::from).map_err(failed);
        let child = at_work.spawn(command.stdout(writer()?).stderr(writer()?));
        let mut attachment = Self {
            what,
            child: child.map_err(failed)?,
            at_work: at_work.clone(),
            pids: pids.to_vec(),
            said,
        };
        let tool = attachment.tool();
        let begun = eventually(ATTACH_PATIENCE, || match attachment.ended() {
            Some(status) => Some(Err(attachment.unexpected(status))),
            None => is_attached(tool).then_some(Ok(())),
        });
        match begun {
            Some(outcome) => outcome.map(|()| attachment),
            None => Err(tools::failed(what, "it does not attach")),
        }
    }

    /// Lets the tool look for `time`.
    pub(crate) fn watch(&mut self, time: Duration) -> Result<(), ProfileError> {
        let trouble = eventually(time, || {
            let gone = self.pids.iter().copied().find(|&pid| !is_alive(pid));
            match (gone, self.ended()) {
                (Some(pid), _) => Some(ProfileError::Ended { pid: pid.as_raw() }),
                (None, Some(status)) => Some(self.unexpected(status)),
                (None, None) => None,
            }
        });
        trouble.map_or(Ok(()), Err)
    }

    /// Stops the tool, which then has written what it saw.
    pub(crate) fn finish(mut self) -> Result<(), ProfileError> {
        self.watch(Duration::ZERO)?;
        // It fails only for a process that has been waited for.
        let _ = kill(self.tool(), Signal::SIGINT);
        let status = eventually(STOP_PATIENCE, || self.ended());
        let Some(status) = status else {
            return Err(tools::failed(self.what, "it does not end"));
        };
        // Tools end by the signal once they have written everything.
        let is_whole = status.success() || status.signal() == Some(libc::SIGINT);
        if is_whole {
            Ok(())
        } else {
            Err(self.unexpected(status))
        }
    }

    fn tool(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        self.at_work.forget(self.tool());
        Some(status)
    }

    fn unexpected(&self, status: ExitStatus) -> ProfileError {
        if let Some(pid) = self.pids.iter().find(|&&pid| !is_alive(pid)) {
            return ProfileError::Ended { pid: pid.as_raw() };
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
        self.at_work.kill(self.tool());
        // It fails only for a child that has been waited for.
        let _ = self.child.wait();
        self.at_work.forget(self.tool());
    }
}

/// Whether the process `pid` runs, and is more than what is left of it for its parent.
pub(crate) fn is_alive(pid: Pid) -> bool {
    // The state is behind the name in parentheses, which may hold anything (proc_pid_stat(5)).
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use std::process;

    use nix::sys::signal::{SigHandler, signal};

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_tool_that_ends_by_itself_is_an_error_with_what_it_said() {
        let shell = shell("echo no such thing >&2; exit 1");
        let error = Attachment::start(&AtWork::default(), "perf record", shell, &[me()], |_| false)
            .unwrap_err();
        assert_eq!(error.to_string(), "perf record failed: no such thing");
    }

    #[test]
    fn a_tool_is_stopped_by_the_signal_that_makes_it_write() {
        // As a script's background job has it.
        // SAFETY: nothing in this process has a handler for it.
        unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }.unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let script = format!(
            "trap 'echo seen > {path}; exit 0' INT; echo > {path}; while :; do sleep 0.01; done"
        );
        let begun = |_| fs::read(file.path()).is_ok_and(|bytes| !bytes.is_empty());
        let at_work = AtWork::default();
        let mut tool =
            Attachment::start(&at_work, "a shell", shell(&script), &[me()], begun).unwrap();
        tool.watch(SHORT).unwrap();
        tool.finish().unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "seen\n");
    }

    #[test]
    fn a_daemon_that_ends_is_the_reason() {
        let mut daemon = process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(daemon.id().cast_signed());
        let sleeper = shell("sleep 60");
        let at_work = AtWork::default();
        let mut tool = Attachment::start(&at_work, "a shell", sleeper, &[pid], |_| true).unwrap();
        tool.watch(SHORT).unwrap();
        daemon.kill().unwrap();
        let error = tool.watch(LONG).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("the daemon (process {pid}) ended while it was profiled")
        );
        assert!(tool.finish().is_err());
        daemon.wait().unwrap();
        assert!(!is_alive(pid));
    }

    #[test]
    fn what_a_tool_has_started_ends_with_it() {
        for is_interrupted in [false, true] {
            let at_work = AtWork::default();
            let file = tempfile::NamedTempFile::new().unwrap();
            let script = format!("sleep 600 & echo $! > {}; wait", file.path().display());
            let started = || fs::read_to_string(file.path()).unwrap().trim().parse().ok();
            let begun = |_| started().is_some();
            let tool = Attachment::start(&at_work, "a shell", shell(&script), &[me()], begun);
            let sleeper = Pid::from_raw(started().unwrap());
            assert!(is_alive(sleeper));
            if is_interrupted {
                at_work.close();
                // As after the end of this process.
                std::mem::forget(tool.unwrap());
                let next = Attachment::start(&at_work, "a shell", shell(""), &[], |_| true);
                assert!(next.is_err(), "nothing starts any more");
            } else {
                drop(tool.unwrap());
            }
            let gone = eventually(LONG, || (!is_alive(sleeper)).then_some(()));
            assert!(gone.is_some(), "interrupted: {is_interrupted}");
        }
    }

    fn me() -> Pid {
        Pid::this()
    }

    fn shell(script: &str) -> Command {
        let mut command = tools::command("sh");
        command.args(["-c", script]);
        command
    }
}
