//! A tool that observes running processes, from the moment it is attached until it is stopped.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Seek as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use convoy_lab::{Pid, eventually, measure::process::is_alive};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill, killpg};

use super::directory;
use super::tool::{self, Tool, failed};

/// Most starts of a tool that ends without a word.
const STARTS: u32 = 3;
/// Time limit for a tool to attach.
const ATTACH_PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for a process that ends to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for writing its result.
const STOP_PATIENCE: Duration = Duration::from_secs(120);

/// A running tool; when dropped, it is killed with all processes that it has started.
pub(crate) struct Attachment {
    name: &'static str,
    child: Child,
    pids: Vec<Pid>,
    /// The tool's errors and warnings; its result goes to a file.
    said: File,
    /// Its standard output.
    says: PipeReader,
    /// Its standard input, which stays open.
    _requests: PipeWriter,
}

impl Attachment {
    /// Starts `tool` by the `command` that this returns, and waits until it is attached to all of `pids`.
    ///
    /// On a busy machine, `perf` may end before it begins and give no reason: then it is started again.
    pub(super) fn start(
        tool: &Tool,
        command: impl Fn() -> Result<Command>,
        pids: &[Pid],
    ) -> Result<Self> {
        let mut starts = 1;
        loop {
            let attachment = Self::spawn(tool, command()?, pids);
            let mut attachment =
                attachment.map_err(|error| failed(tool.name, &error.to_string()))?;
            let begun = eventually(ATTACH_PATIENCE, || match attachment.ended() {
                Some(status) => Some(Err(status)),
                None => (tool.is_attached)(pids, &mut attachment.says).then_some(Ok(())),
            });
            let error = match begun {
                Some(Ok(())) => return Ok(attachment),
                Some(Err(status)) => attachment.unexpected(status),
                None => return Err(failed(tool.name, "it does not attach")),
            };
            if starts == STARTS || !attachment.said().is_empty() || attachment.gone().is_some() {
                return Err(error);
            }
            starts += 1;
        }
    }

    fn spawn(tool: &Tool, mut command: Command, pids: &[Pid]) -> io::Result<Self> {
        let said = File::from(memfd_create(c"said", MFdFlags::MFD_CLOEXEC)?);
        let (stdin, mut requests) = io::pipe()?;
        let (says, stdout) = io::pipe()?;
        fcntl(&says, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        requests.write_all(tool::ENABLE)?;
        command.stdin(stdin).stdout(stdout);
        command.stderr(said.try_clone()?);
        Ok(Self {
            name: tool.name,
            child: directory::spawn(&mut command)?,
            pids: pids.to_vec(),
            said,
            says,
            _requests: requests,
        })
    }

    /// Lets the tool run for `time`; fails if the tool or a process ends before that.
    pub(crate) fn watch(&mut self, time: Duration) -> Result<()> {
        let trouble = eventually(time, || match self.gone() {
            Some(pid) => Some(daemon_ended(pid)),
            None => self.ended().map(|status| self.unexpected(status)),
        });
        trouble.map_or(Ok(()), Err)
    }

    /// Stops the tool and waits until it has written its result.
    pub(super) fn finish(mut self) -> Result<()> {
        self.watch(Duration::ZERO)?;
        // kill(2) fails only for a process that has already been waited for.
        let _ = kill(self.process(), Signal::SIGINT);
        let status = eventually(STOP_PATIENCE, || self.ended());
        let status = status.ok_or_else(|| failed(self.name, "it does not end"))?;
        // Some tools die of the signal after writing everything.
        match status.success() || status.signal() == Some(libc::SIGINT) {
            true => Ok(()),
            false => Err(self.unexpected(status)),
        }
    }

    fn process(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn gone(&self) -> Option<Pid> {
        self.pids.iter().copied().find(|&pid| !is_alive(pid))
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        directory::forget_tool();
        Some(status)
    }

    fn unexpected(&self, status: ExitStatus) -> Error {
        // A tool may notice an end before all threads have ended.
        if let Some(pid) = eventually(DEATH_PATIENCE, || self.gone()) {
            return daemon_ended(pid);
        }
        match self.said() {
            said if said.is_empty() => failed(self.name, &status.to_string()),
            said => failed(self.name, &String::from_utf8_lossy(&said)),
        }
    }

    /// Reads what it has written about errors.
    fn said(&self) -> Vec<u8> {
        let (mut said, mut file) = (Vec::new(), &self.said);
        // A file in memory can be read.
        let _ = file.rewind().and_then(|()| file.read_to_end(&mut said));
        said
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The number of one that has been waited for may be another process's.
        if self.ended().is_none() {
            // killpg(2) fails if the whole group has ended.
            let _ = killpg(self.process(), Signal::SIGKILL);
            let _ = self.child.wait();
            directory::forget_tool();
        }
    }
}

pub(super) fn daemon_ended(pid: Pid) -> Error {
    anyhow!("the daemon (process {pid}) ended while it was profiled")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::sys::signal::{SigHandler, signal};

    use super::*;
    use crate::profile::record;

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
        let tool = start(&script, |_, _| true).unwrap();
        let begun = || fs::read(file.path()).is_ok_and(|bytes| !bytes.is_empty());
        assert!(eventually(LONG, || begun().then_some(())).is_some());
        tool.finish().unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "seen\n");
    }

    #[test]
    fn a_tool_takes_all_that_it_has_started_with_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 600 & echo $! > {}; wait", file.path().display());
        let tool = start(&script, |_, _| true).unwrap();
        let started = || fs::read_to_string(file.path()).unwrap().trim().parse().ok();
        let sleeper = Pid::from_raw(eventually(LONG, started).unwrap());
        assert!(is_alive(sleeper));
        drop(tool);
        let gone = eventually(LONG, || (!is_alive(sleeper)).then_some(()));
        assert!(gone.is_some());
    }

    #[test]
    fn a_tool_is_attached_once_it_has_confirmed_the_request() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let confirms =
            format!("read request; sleep 0.2; echo $request > {path}; echo ack; exec sleep 60");
        let attachment = start(&confirms, tool::has_confirmed).unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "enable\n");
        drop(attachment);
        let refused = refusal(&format!("echo again >> {path}; echo no >&2; exit 3"));
        assert!(refused.ends_with("failed: no"), "{refused}");
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "enable\nagain\n");
    }

    #[test]
    fn a_tool_that_ends_without_a_word_is_started_again_a_few_times() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let fails_once =
            format!("[ -s {path} ] || {{ echo > {path}; exit 255; }}; echo ack; exec sleep 60");
        drop(start(&fails_once, tool::has_confirmed).unwrap());
        let error = refusal(&format!("echo >> {path}; exit 255"));
        assert!(error.ends_with("failed: exit status: 255"), "{error}");
        assert_eq!(fs::read(file.path()).unwrap().len(), 1 + STARTS as usize);
    }

    fn refusal(script: &str) -> String {
        let refused = start(script, tool::has_confirmed);
        refused.err().unwrap().to_string()
    }

    fn start(script: &str, is_attached: fn(&[Pid], &mut PipeReader) -> bool) -> Result<Attachment> {
        let shell = Tool {
            is_attached,
            ..record::TOOL
        };
        let command = || {
            let mut command = tool::command("sh");
            command.args(["-c", script]);
            Ok(command)
        };
        Attachment::start(&shell, command, &[Pid::this()])
    }
}
