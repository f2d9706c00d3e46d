//! Finds other programs, and runs them to completion.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

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
