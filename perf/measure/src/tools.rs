//! The programs that do the work: whether they are there, and how they are started.

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

use crate::{ProfileError, permission};

/// Fails when `program` does not run, with the command that installs it.
///
/// Ubuntu's `perf` is there without the one of the running kernel, and then says so: it has to run.
pub(crate) fn require(program: &'static str) -> Result<(), ProfileError> {
    let runs = command(program).arg("--version").output();
    match runs {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(not_installed(program)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_installed(program)),
        Err(error) => Err(failed(program, error.to_string())),
    }
}

/// A command that dies with this process, and writes numbers as everywhere.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    let parent = getpid();
    let prepare = move || {
        // Tools are told to stop by it, and a script's background job has it ignored.
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

/// Runs `command` to its end; what it wrote to its standard error is the reason if it fails.
pub(crate) fn run(what: &str, mut command: Command) -> Result<Output, ProfileError> {
    let output = command.output();
    let output = output.map_err(|error| failed(what, error.to_string()))?;
    if !output.status.success() {
        return Err(failed(what, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(output)
}

/// `what` has failed, and `said` why.
pub(crate) fn failed(what: &str, said: impl AsRef<str>) -> ProfileError {
    let said = said.as_ref().trim().to_owned();
    ProfileError::Failed {
        program: what.to_owned(),
        hint: permission::hint(&said),
        said,
    }
}

fn not_installed(program: &'static str) -> ProfileError {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    ProfileError::NotInstalled {
        program,
        fix: install_command(program, &system),
    }
}

/// The command for the system that `os_release` tells of (os-release(5)).
fn install_command(program: &str, os_release: &str) -> String {
    let names = os_release.lines().filter_map(|line| line.split_once('='));
    let names: Vec<_> = names
        .filter(|(key, _)| matches!(*key, "ID" | "ID_LIKE"))
        .flat_map(|(_, value)| value.trim_matches('"').split(' '))
        .collect();
    let is_like = |name| names.contains(&name);
    let kernels = "linux-tools-common linux-tools-$(uname -r)";
    let (installer, package) = if is_like("ubuntu") {
        (
            "apt-get install",
            if program == "perf" { kernels } else { program },
        )
    } else if is_like("debian") {
        (
            "apt-get install",
            if program == "perf" {
                "linux-perf"
            } else {
                program
            },
        )
    } else if is_like("fedora") {
        ("dnf install", program)
    } else if is_like("arch") {
        ("pacman -S", program)
    } else {
        return format!(
            "install {program} with this system's packages: on Debian linux-perf and strace"
        );
    };
    format!("`sudo {installer} {package}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_named_as_the_system_names_it() {
        let command = |system| install_command("perf", system);
        assert_eq!(command("ID=debian"), "`sudo apt-get install linux-perf`");
        assert!(command("ID=ubuntu\nID_LIKE=debian").contains("linux-tools-$(uname -r)"));
        let derived = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"";
        assert!(command(derived).contains("linux-tools-$(uname -r)"));
        assert_eq!(command("ID=fedora"), "`sudo dnf install perf`");
        assert!(command("").contains("linux-perf"));
        let strace = install_command("strace", "ID=debian");
        assert_eq!(strace, "`sudo apt-get install strace`");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_fix() {
        let error = require("convoy-no-such-program").unwrap_err().to_string();
        assert!(
            error.contains("convoy-no-such-program is not installed"),
            "{error}"
        );
        assert!(error.contains("fix:"), "{error}");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let mut shell = command("sh");
        shell.args(["-c", "echo out; echo the reason >&2; exit 3"]);
        let error = run("sh -c", shell).unwrap_err().to_string();
        assert_eq!(error, "sh -c failed: the reason");
    }
}
