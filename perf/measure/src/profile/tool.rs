//! perf and strace: whether they are installed, what they may see, and how to start them.

use std::fs;
use std::io::{self, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Error, Result, anyhow, bail};
use convoy_lab::Pid;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{geteuid, getpid, getppid};

use super::{args::CallGraph, directory::Directory};

/// Above this level, users do not see the kernel's part (Documentation/admin-guide/sysctl/kernel.rst).
const MOST_PARANOID: i32 = 1;
/// Words that appear in a refusal.
const REFUSALS: [&str; 5] = [
    "permitted",
    "permission",
    "access to perf",
    "eacces",
    "eperm",
];

/// The request to begin; strace ignores it.
pub(super) const ENABLE: &[u8] = b"enable\n";

/// A tool that observes the daemons.
pub(crate) struct Tool {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// The line of progress while it runs.
    pub(super) progress: &'static str,
    pub(super) command: fn(&Subject) -> Result<Command>,
    /// Whether it observes the processes now; its standard output, which does not block, may say so.
    pub(super) is_attached: fn(&[Pid], &mut PipeReader) -> bool,
}

/// Processes to observe, and the place of the result.
pub(super) struct Subject {
    pub(super) pids: Vec<Pid>,
    pub(super) directory: Directory,
    /// The event that `perf record` samples.
    pub(super) event: &'static str,
    pub(super) call_graph: CallGraph,
}

/// Fails if `program` does not run; names the packages that install it.
///
/// Ubuntu installs `perf` without the part for the running kernel, so this runs it.
pub(super) fn require(program: &'static str) -> Result<()> {
    match command(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(program, &error.to_string()))
        }
        _ => bail!(
            "{program} is not installed, or not for this kernel (fix: `sudo apt-get install strace linux-perf`; \
             on Ubuntu, linux-tools-common and linux-tools-$(uname -r) instead of linux-perf; elsewhere \
             strace and perf)"
        ),
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

/// A command of `perf` that observes `subject` and writes to the file `output`. It counts only once it has read
/// [`ENABLE`] from its standard input, and then confirms that.
pub(super) fn perf(subject: &Subject, arguments: &[&str], output: &str) -> Command {
    let pids: Vec<_> = subject.pids.iter().map(ToString::to_string).collect();
    let mut command = command("perf");
    command.args(arguments);
    command.args(["--delay=-1", "--control=fd:0,1"]);
    command.args(["--pid", &pids.join(","), "--output"]);
    command.arg(subject.directory.file(output));
    command
}

/// Returns whether `perf` has confirmed that it counts. From its open counters nobody could tell: it may still be busy
/// with what the processes have mapped, and end without a result.
pub(super) fn has_confirmed(_pids: &[Pid], confirmations: &mut PipeReader) -> bool {
    let read = confirmations.read(&mut [0; 16]);
    read.is_ok_and(|length| length > 0)
}

/// `what` failed for the reason that it `said`, with the fix if it was refused.
pub(super) fn failed(what: &str, said: &str) -> Error {
    let said = said.trim();
    let lowercase = said.to_lowercase();
    let hint = if !REFUSALS.iter().any(|word| lowercase.contains(word)) {
        ""
    } else if geteuid().is_root() {
        " (fix: in a container, add CAP_PERFMON and CAP_SYS_PTRACE)"
    } else {
        " (fix: run as root; or, for a daemon of this user, `sudo sysctl kernel.perf_event_paranoid=1 \
         kernel.kptr_restrict=0 kernel.yama.ptrace_scope=0`)"
    };
    anyhow!("{what} failed: {said}{hint}")
}

/// `tool` wrote a `line` that cannot be parsed.
pub(super) fn unreadable(tool: &Tool, line: &str) -> Error {
    anyhow!("cannot parse a line that {} wrote: {line}", tool.name)
}

/// Names the part of a profile that a setting of the kernel hides, with the fix; `None` if nothing is hidden.
pub(super) fn note() -> Option<String> {
    let setting = |name: &str| -> i32 {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.map_or(0, |text| text.trim().parse().unwrap_or(0))
    };
    let is_root = geteuid().is_root();
    let paranoid = setting("perf_event_paranoid");
    if !is_root && paranoid > MOST_PARANOID {
        return Some(format!(
            "The kernel's side is missing: `kernel.perf_event_paranoid` is {paranoid}, and above 1 users see \
             only their own code. Run as root, or `sudo sysctl kernel.perf_event_paranoid=1`."
        ));
    }
    let kptr_restrict = setting("kptr_restrict");
    (kptr_restrict > i32::from(is_root)).then(|| {
        format!(
            "The kernel's functions have no names: `kernel.kptr_restrict` is {kptr_restrict}; 0 shows their \
             addresses to everyone, 1 to root, 2 to nobody. `sudo sysctl kernel.kptr_restrict=0`."
        )
    })
}
