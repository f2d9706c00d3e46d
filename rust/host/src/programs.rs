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

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// Where programs are looked up.
#[derive(Clone, Debug)]
pub(crate) struct Programs(pub(crate) OsString);

impl Default for Programs {
    /// `PATH` with root's directories, which a service's may lack.
    fn default() -> Self {
        let mut path = env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/sbin:/sbin:/usr/bin:/bin");
        Self(path)
    }
}

impl Programs {
    /// The file of a program, if it is installed.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        let mut places = env::split_paths(&self.0).map(|place| place.join(program));
        places.find(|path| path.is_file())
    }

    /// Runs a program with `input`; returns its output, or else the first line of its complaint. It keeps `lock`
    /// open until it ends.
    pub(crate) async fn run<S: AsRef<OsStr>>(
        &self,
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
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input reports the reason itself.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            io::Result::Ok(())
        };
        let output = tokio::try_join!(child.wait_with_output(), feed);
        let (output, ()) = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(complaint.lines().next().unwrap_or("it failed").to_owned())
    }
}
