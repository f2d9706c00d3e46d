//! Finds other programs, and runs them: to completion, or until they are no longer needed.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use convoy_lab::{Namespace, Pid, eventually};
use itertools::Itertools as _;
use nix::sys::signal::{Signal, killpg};
use tempfile::NamedTempFile;

/// The tracepoint of system calls.
const SYSCALL: &str = "raw_syscalls:sys_enter";
/// Where distributions put root's programs; may be missing from `PATH`.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

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
    let is_root = nix::unistd::geteuid().is_root();
    ensure!(
        is_root,
        "this measures in network namespaces: run it as root"
    );
    Ok(())
}

/// Generates a key and a certificate for `subject` with openssl(1), valid for a day: signed by `authority`, which is
/// another key and certificate, or by itself. TLS clients refuse a server's certificate that is an authority's, as each
/// self-signed one of openssl(1) is; and the two subjects must differ, or it would count as self-signed.
pub(crate) fn generate_certificate(
    [key, certificate]: &[PathBuf; 2],
    subject: &str,
    authority: Option<&[PathBuf; 2]>,
) -> Result<()> {
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1";
    let mut openssl = Command::new("openssl");
    openssl.args(request.split(' '));
    openssl.args(["-subj", &format!("/CN={subject}")]);
    openssl.args(["-addext", &format!("subjectAltName={subject}")]);
    openssl.arg("-keyout").arg(key).arg("-out").arg(certificate);
    if let Some([key, certificate]) = authority {
        openssl.arg("-CA").arg(certificate).arg("-CAkey").arg(key);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    output(&mut openssl).context("(fix: apt-get install openssl)")?;
    Ok(())
}

/// Starts counting the system calls of all threads of `pids` for `window`, by the kernel's tracepoint. This is cheap:
/// strace(1) stops a process twice per call, and a slower process would fill its batches less.
///
/// # Errors
/// If perf is not installed.
pub(crate) fn count_syscalls(
    namespace: &Namespace,
    pids: &[Pid],
    window: Duration,
) -> Result<Child> {
    let pids = pids.iter().join(",");
    let mut perf: Command = namespace.command("perf");
    perf.args(["stat", "-x,", "-e", SYSCALL, "-p", &pids, "sleep"]);
    perf.arg(window.as_secs_f64().to_string());
    let perf = perf.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    perf.context("start perf (fix: apt-get install linux-perf)")
}

/// Waits for a counter; `None` if it has counted nothing.
pub(crate) fn counted_syscalls(counter: Child) -> Result<Option<u64>> {
    let output = counter.wait_with_output().context("wait for perf")?;
    Ok(calls(&String::from_utf8_lossy(&output.stderr)))
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
}

impl Started {
    pub(crate) fn new(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = NamedTempFile::new()?;
        command.stdin(Stdio::null()).process_group(0);
        let writer = log.as_file();
        command
            .stdout(writer.try_clone()?)
            .stderr(writer.try_clone()?);
        let child = command.spawn();
        let child = child.with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Fails if it has ended, with the end of its output.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let (name, log) = (&self.name, self.last_lines());
            bail!("{name} ended with {status}\n    {log}");
        }
        Ok(())
    }

    /// Waits until `is_up`. Fails if the program ends first, or after `patience`.
    pub(crate) fn wait_until(
        &mut self,
        patience: Duration,
        mut is_up: impl FnMut(&Self) -> bool,
    ) -> Result<()> {
        let waited = eventually(patience, || match is_up(self) {
            true => Some(Ok(())),
            false => self.check().err().map(Err),
        });
        let (name, log) = (&self.name, self.last_lines());
        waited.with_context(|| format!("{name} is not up after {patience:?}\n    {log}"))?
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
