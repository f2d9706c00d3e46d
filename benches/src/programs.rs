//! Finds other programs, and runs them: to completion, or until they are no longer needed.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use convoy_lab::measure::process;
use convoy_lab::{Namespace, Pid, eventually};
use itertools::Itertools as _;
use nix::sys::signal::{Signal, kill, killpg};
use tempfile::{NamedTempFile, TempDir};

/// The tracepoint of system calls.
const SYSCALL: &str = "raw_syscalls:sys_enter";
/// Where distributions put root's programs; may be missing from `PATH`.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Time limit for a program to come up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for a program's processes to end before they are killed.
const END: Duration = Duration::from_secs(3);

/// Returns the standard output of a program.
///
/// # Errors
/// If the program cannot be started or fails. Includes its standard error, unless that is inherited.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    let (status, reason) = (output.status, String::from_utf8_lossy(&output.stderr));
    let reason = reason.trim();
    ensure!(status.success(), "{name} ended with {status}: {reason}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line of a program's output.
pub(crate) fn first_line(command: &mut Command) -> Result<String> {
    Ok(output(command)?.lines().next().unwrap_or_default().into())
}

/// Fails, with the fix, if a program has not been built.
pub(crate) fn ensure_built(program: &Path) -> Result<()> {
    let path = program.display();
    ensure!(program.is_file(), "{path} is missing (fix: make build)");
    Ok(())
}

/// The path of a program, or its name if it is not found.
pub(crate) fn find(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(OF_ROOT.map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| program.into())
}

/// Fails without root, which network namespaces, tunnels and packet sockets need.
pub(crate) fn ensure_root() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("this measures in network namespaces: run it as root");
    }
    Ok(())
}

/// Writes a new file that only its owner can read.
pub(crate) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())
}

/// Starts counting the system calls of all threads of `pids` for `window`, by the kernel's tracepoint. This is cheap:
/// strace(1) stops a process twice per call, and a slower process would fill its batches less.
///
/// # Errors
/// If perf is not installed.
pub(crate) fn count_syscalls(place: &Namespace, pids: &[Pid], window: Duration) -> Result<Child> {
    let pids = pids.iter().join(",");
    let mut perf: Command = place.command("perf");
    perf.args(["stat", "-x,", "-e", SYSCALL, "-p", &pids, "sleep"]);
    perf.arg(window.as_secs_f64().to_string());
    let perf = perf.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    perf.context("start perf (fix: apt-get install linux-perf)")
}

/// Waits for a counter; fails if it has counted nothing.
pub(crate) fn counted_syscalls(counter: Child) -> Result<u64> {
    let output = counter.wait_with_output().context("wait for perf")?;
    calls(&String::from_utf8_lossy(&output.stderr)).context("perf counted nothing")
}

/// Parses the first field of the event's line (perf-stat(1), "CSV FORMAT").
fn calls(printed: &str) -> Option<u64> {
    let mut lines = printed.lines().map(|line| line.split(','));
    let mut fields = lines.find(|fields| fields.clone().contains(&SYSCALL))?;
    fields.next()?.parse().ok()
}

/// A running program with its children, one process group; killed when dropped.
pub(crate) struct Started {
    name: String,
    child: Child,
    log: NamedTempFile,
    /// Absent if the program runs from where it is.
    own: Option<TempDir>,
}

impl Started {
    pub(crate) fn new(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = NamedTempFile::new()?;
        command.stdin(Stdio::null()).process_group(0);
        let writer = || log.as_file().try_clone();
        command.stdout(writer()?).stderr(writer()?);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self {
            name,
            child,
            log,
            own: None,
        })
    }

    /// Starts a copy of `program` in a directory of its own, so that all of its processes are found by what they execute,
    /// with these words as arguments; `{file}` is the path of a file with `text`, which names the tunnel.
    pub(crate) fn copy(place: &Namespace, program: &Path, words: &str, text: &str) -> Result<Self> {
        let own = tempfile::tempdir()?;
        let name = program.file_name().context("it has no name")?;
        let copy = own.path().join(name);
        fs::copy(program, &copy)?;
        let file = own.path().join("wg0.conf");
        write_private(&file, text)?;
        let words = words.replace("{file}", &file.to_string_lossy());
        let mut started = Self::new(place.command(copy).args(words.split_whitespace()))?;
        started.own = Some(own);
        Ok(started)
    }

    /// Its processes: all that execute its copy, whatever their parents, or else the first.
    pub(crate) fn pids(&self) -> Result<Vec<Pid>> {
        Ok(match &self.own {
            Some(own) => process::executing(own.path())?,
            None => vec![self.pid()],
        })
    }

    /// Fails if it has ended, with the end of its output. What `convoy exec` has become outlives the tunnel.
    pub(crate) fn check(&mut self) -> Result<()> {
        let status = self.child.try_wait()?.map(|it| format!(" with {it}"));
        if status.is_some() || self.pids()?.is_empty() {
            let (name, log) = (&self.name, self.last_lines());
            bail!("{name} ended{}\n    {log}", status.unwrap_or_default());
        }
        Ok(())
    }

    /// Waits until `is_up`. Fails if the program ends first, or after [`PATIENCE`].
    pub(crate) fn wait_until(&mut self, is_up: impl Fn(&Self) -> bool) -> Result<()> {
        let waited = eventually(PATIENCE, || match is_up(self) {
            true => Some(Ok(())),
            false => self.check().err().map(Err),
        });
        let (name, log) = (&self.name, self.last_lines());
        waited.with_context(|| format!("{name} is not up after {PATIENCE:?}\n    {log}"))?
    }

    pub(crate) fn pid(&self) -> Pid {
        // Process numbers are below 2²² (PID_MAX_LIMIT).
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Returns its output so far.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.log.path()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the end of its output, for an error message.
    pub(crate) fn last_lines(&self) -> String {
        const LINES: usize = 8;
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n    ")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Errors mean that they have already ended.
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let ended = eventually(END, || {
                let own = self.own.as_ref();
                let pids = own.and_then(|own| process::executing(own.path()).ok());
                let pids = pids.unwrap_or_default();
                for pid in &pids {
                    let _ = kill(*pid, signal);
                }
                pids.is_empty().then_some(())
            });
            if ended.is_some() {
                break;
            }
        }
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_that_of_the_event() {
        let printed = "# started\n931649,,raw_syscalls:sys_enter,162983813,100.00,,\n";
        assert_eq!(calls(printed), Some(931_649));
        let printed = "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(calls(printed), None);
    }
}
