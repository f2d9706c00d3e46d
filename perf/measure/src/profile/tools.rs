//! perf and strace: whether they are there, and how they are started.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    process::{Command, Output, Stdio},
};

use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{SigHandler, Signal, signal},
    },
    unistd::{getpid, getppid},
};

use super::permission;
use crate::Error;

/// Fails when `program` does not run, with the command that installs it.
///
/// Ubuntu's `perf` is there without the one of the running kernel, and then says so: it has to run.
pub(super) fn require(program: &'static str) -> Result<(), Error> {
    match command(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(program, error.to_string()))
        }
        _ => Err(Error::NotInstalled {
            program,
            fix: install_command(
                program,
                &fs::read_to_string("/etc/os-release").unwrap_or_default(),
            ),
        }),
    }
}

/// A command that dies with this process, and writes numbers the same everywhere.
pub(super) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let parent = getpid();
    let prepare = move || {
        // It stops a tool; a script's background job ignores it.
        // SAFETY: no handler is left behind that would have to be safe.
        unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }?;
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    };
    // SAFETY: signal(2), prctl(2) and getppid(2) are async-signal-safe, as a forked child's calls must be.
    unsafe { command.pre_exec(prepare) };
    command
}

/// Runs `command` to its end; its standard error is the reason if it fails.
pub(super) fn run(what: &str, mut command: Command) -> Result<Output, Error> {
    let output = command.output();
    let output = output.map_err(|error| failed(what, error.to_string()))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(failed(what, String::from_utf8_lossy(&output.stderr))),
    }
}

/// `what` has failed, and `said` why.
pub(super) fn failed(what: &str, said: impl AsRef<str>) -> Error {
    let said = said.as_ref().trim().to_owned();
    Error::Failed {
        program: what.to_owned(),
        hint: permission::hint(&said),
        said,
    }
}

/// The command for the system that `os_release` describes (os-release(5)).
fn install_command(program: &str, os_release: &str) -> String {
    let fields = os_release.lines().filter_map(|line| line.split_once('='));
    let names = fields.filter(|(key, _)| matches!(*key, "ID" | "ID_LIKE"));
    let names: Vec<_> = names
        .flat_map(|(_, value)| value.trim_matches('"').split(' '))
        .collect();
    let (installer, perf) = if names.contains(&"ubuntu") {
        (
            "apt-get install",
            "linux-tools-common linux-tools-$(uname -r)",
        )
    } else if names.contains(&"debian") {
        ("apt-get install", "linux-perf")
    } else if names.contains(&"fedora") {
        ("dnf install", "perf")
    } else if names.contains(&"arch") {
        ("pacman -S", "perf")
    } else {
        return format!(
            "install {program} with this system's packages: on Debian linux-perf and strace"
        );
    };
    let package = if program == "perf" { perf } else { program };
    format!("`sudo {installer} {package}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_named_as_the_system_names_it() {
        let command = |system| install_command("perf", system);
        assert_eq!(command("ID=debian"), "`sudo apt-get install linux-perf`");
        let derived = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"";
        assert!(command(derived).contains("linux-tools-$(uname -r)"));
        assert_eq!(command("ID=fedora"), "`sudo dnf install perf`");
        assert!(command("").contains("linux-perf"));
        assert_eq!(
            install_command("strace", "ID=arch"),
            "`sudo pacman -S strace`"
        );
    }

    #[test]
    fn a_program_that_fails_is_quoted_and_one_that_is_missing_comes_with_its_fix() {
        let mut shell = command("sh");
        shell.args(["-c", "echo out; echo the reason >&2; exit 3"]);
        let error = run("sh -c", shell).unwrap_err().to_string();
        assert_eq!(error, "sh -c failed: the reason");
        let error = require("convoy-no-such-program").unwrap_err().to_string();
        assert!(
            error.contains("not installed") && error.contains("fix:"),
            "{error}"
        );
    }
}
