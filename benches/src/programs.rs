//! Finds other programs, and runs them: to completion, or until they are no longer needed.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, bail, ensure};
use convoy_lab::Pid;
use nix::sys::signal::{Signal, killpg};
use tempfile::NamedTempFile;

/// Where distributions put root's programs; may be missing from `PATH`.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Returns the standard output of a program.
///
/// # Errors
/// If the program cannot be started or fails. Includes its standard error, unless that is inherited.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    let (status, reason) = (output.status, String::from_utf8_lossy(&output.stderr));
    let reason = reason.trim();
    ensure!(status.success(), "{name} ended with {status}: {reason}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line of a program's output.
pub(crate) fn first_line(command: &mut Command) -> anyhow::Result<String> {
    Ok(output(command)?.lines().next().unwrap_or_default().into())
}

/// Fails, with the fix, if a program has not been built.
pub(crate) fn ensure_built(program: &Path) -> anyhow::Result<()> {
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

/// Generates a key and a self-signed certificate for `subject` with openssl(1), valid for a day.
pub(crate) fn generate_certificate(files: &[PathBuf; 2], subject: &str) -> anyhow::Result<()> {
    generate(files, subject, &[])
}

/// Generates a server's key and certificate for `subject`, signed by `authority`, another key and certificate. TLS
/// clients refuse a server's certificate that is an authority's, as each self-signed one of openssl(1) is.
pub(crate) fn generate_server_certificate(
    server: &[PathBuf; 2],
    subject: &str,
    authority: &[PathBuf; 2],
) -> anyhow::Result<()> {
    generate_certificate(authority, "DNS:authority.bench")?;
    let [key, certificate] = authority.each_ref().map(|it| it.as_os_str());
    let is_no_authority = OsStr::new("basicConstraints=critical,CA:FALSE");
    let [by, with, and] = ["-CA", "-CAkey", "-addext"].map(OsStr::new);
    let options = [by, certificate, with, key, and, is_no_authority];
    generate(server, subject, &options)
}

fn generate(
    [key, certificate]: &[PathBuf; 2],
    subject: &str,
    options: &[&OsStr],
) -> anyhow::Result<()> {
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1";
    let mut openssl = Command::new("openssl");
    // The server's name differs from its authority's: else it would count as self-signed.
    openssl.args(request.split(' '));
    openssl.args(["-subj", &format!("/CN={subject}")]);
    openssl.args(["-addext", &format!("subjectAltName={subject}")]);
    openssl.arg("-keyout").arg(key).arg("-out").arg(certificate);
    output(openssl.args(options)).context("(fix: apt-get install openssl)")?;
    Ok(())
}

/// A running program with its children, one process group; killed when dropped.
pub(crate) struct Started {
    name: String,
    child: Child,
    log: NamedTempFile,
}

impl Started {
    pub(crate) fn new(command: &mut Command) -> anyhow::Result<Self> {
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
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended with {status}\n    {}",
                self.name,
                self.last_lines()
            );
        }
        Ok(())
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
