//! Programs of the host: nft(8) and resolvconf(8).

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::Command,
    time::{Duration, timeout},
};

/// Time limit for a program: on a machine that is busy, or short of memory, nft(8) has taken more than ten seconds.
/// Three in a row that hang must end before a service manager's watchdog, which waits a minute.
const TIME_LIMIT: Duration = Duration::from_secs(18);

/// In the reason of a program that was killed.
pub(crate) const HANGS: &str = "did not end within";

/// The directories of root's programs, which a service's `PATH` may lack.
const DIRECTORIES: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// The absolute directories in `PATH`, then those of root's programs. An empty or relative one would be the working
/// directory, where anybody may have put a program.
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let own = env::split_paths(&path).filter(|place| place.is_absolute());
    let all = own.chain(env::split_paths(DIRECTORIES));
    // No element has a colon, which is what joining could fail at.
    env::join_paths(all).unwrap_or_else(|_| DIRECTORIES.into())
}

/// Where programs are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Programs(pub(crate) OsString);

impl Default for Programs {
    fn default() -> Self {
        Self(search_path())
    }
}

impl Programs {
    /// The file of a program, if it is installed.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        let mut places = env::split_paths(&self.0).map(|place| place.join(program));
        places.find(|path| path.is_file())
    }

    /// Runs a program with `input`; returns its output, or else the first line of its complaint. It keeps `lock`
    /// open until it ends, which it must do within [`TIME_LIMIT`].
    pub(crate) async fn run<S: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: &[S],
        input: &str,
        lock: Option<&Arc<File>>,
    ) -> Result<String, String> {
        let limited = self.run_within(TIME_LIMIT, program, arguments, input, lock);
        limited.await
    }

    async fn run_within<S: AsRef<OsStr>>(
        &self,
        limit: Duration,
        program: &str,
        arguments: &[S],
        input: &str,
        lock: Option<&Arc<File>>,
    ) -> Result<String, String> {
        let missing = || format!("{program} is not installed");
        let mut command = Command::new(self.find(program).ok_or_else(missing)?);
        command
            .args(arguments)
            .env("PATH", &self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(lock) = lock.map(Arc::clone) {
            let keep = move || {
                let kept = fcntl(&*lock, FcntlArg::F_SETFD(FdFlag::empty()));
                kept.map(drop).map_err(io::Error::from)
            };
            // SAFETY: `keep` makes one system call, which is async-signal-safe, as required of a forked child.
            unsafe { command.pre_exec(keep) };
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (stdin, group) = (child.stdin.take(), child.id());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input reports the reason itself.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            io::Result::Ok(())
        };
        let ended = async { tokio::try_join!(child.wait_with_output(), feed) };
        let Ok(output) = timeout(limit, ended).await else {
            // A script may have started others, which would hold the lock.
            if let Some(group) = group {
                // It fails only if all have ended.
                let _ = killpg(Pid::from_raw(group.cast_signed()), Signal::SIGKILL);
            }
            return Err(format!("{program} {HANGS} {limit:?}"));
        };
        let (output, ()) = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(complaint.lines().next().unwrap_or("it failed").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[tokio::test]
    async fn a_program_that_hangs_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("nft");
        fs::write(&program, "#!/bin/sh\nsleep 1000\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let programs = Programs(format!("{}:{DIRECTORIES}", directory.path().display()).into());
        let limit = Duration::from_millis(200);
        let outcome = programs
            .run_within::<&str>(limit, "nft", &[], "", None)
            .await;
        assert_eq!(outcome.unwrap_err(), "nft did not end within 200ms");
    }

    #[test]
    fn only_absolute_directories_are_searched() {
        let path = search_path();
        let places: Vec<_> = env::split_paths(&path).collect();
        assert!(places.iter().all(|place| place.is_absolute()), "{path:?}");
        assert!(
            places.ends_with(&["/usr/bin".into(), "/bin".into()]),
            "{path:?}"
        );
    }
}
