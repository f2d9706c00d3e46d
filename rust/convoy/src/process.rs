//! What concerns the process as a whole: core dumps, panics, inherited file descriptors.

use std::{
    env,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    panic,
};

use anyhow::{Context, ensure};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::resource::{Resource, setrlimit},
};
use tracing::{error, warn};

use crate::uapi::socket::SocketFile;

/// A core dump would hold private keys.
///
/// `PR_SET_DUMPABLE` would do it too, but would also keep the user's own `perf` away.
pub(crate) fn forbid_core_dumps() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        warn!("cannot turn core dumps off: {error}");
    }
}

/// Makes a panic in any thread the end of the process: one line, no socket file, exit status 1.
pub(crate) fn end_on_panic(socket_file: Option<SocketFile>) {
    panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed").to_owned();
        let place = panic.location().map(ToString::to_string);
        let place = place.unwrap_or_else(|| "an unknown place".to_owned());
        let message = panic.payload_as_str().unwrap_or("no message");
        let message = message.replace('\n', " ");
        if tracing::enabled!(tracing::Level::ERROR) {
            error!("thread {thread} panicked at {place}: {message}");
        } else {
            eprintln!("convoy: thread {thread} panicked at {place}: {message}");
        }
        if let Some(file) = &socket_file {
            file.remove();
        }
        std::process::exit(1);
    }));
}

/// Takes over the open file descriptor whose number is in the environment variable `name`.
///
/// To be called once a name, while the process has no other thread.
pub(crate) fn inherited_fd(name: &str) -> anyhow::Result<Option<OwnedFd>> {
    let number = match env::var(name) {
        Ok(number) if !number.is_empty() => number,
        _ => return Ok(None),
    };
    let number: RawFd = number
        .parse()
        .with_context(|| format!("{name} is no number"))?;
    ensure!(number > 2, "{name} is one of the standard streams");
    // SAFETY: whoever set the variable gave the descriptor to this process; nothing here owns one
    // yet that it did not open itself, and this function is called once a name.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    if let Err(error) = fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
        // Dropping it would close a number that is not open, or not ours.
        std::mem::forget(fd);
        return Err(error).with_context(|| format!("{name} is no open file descriptor"));
    }
    Ok(Some(fd))
}

/// Gives the kernel back what was freed: a large request would stay in the allocator's hands.
pub(crate) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim has no precondition, and locks what it touches.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, process::Command};

    use super::*;
    use crate::uapi::socket;

    /// Names the socket file, and so tells the process that is to panic from the one that looks on.
    const SOCKET: &str = "CONVOY_TEST_PANIC_SOCKET";

    #[test]
    fn a_panic_in_any_thread_is_one_line_and_the_end() {
        if let Some(path) = env::var_os(SOCKET) {
            panic_in_a_thread(PathBuf::from(path));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let name = "process::tests::a_panic_in_any_thread_is_one_line_and_the_end";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(SOCKET, &path)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("convoy: thread tun-writer panicked at "));
        assert!(said.ends_with(": two lines\n"), "{said}");
        assert!(!path.exists());
    }

    fn panic_in_a_thread(path: PathBuf) -> ! {
        let (_listener, file) = socket::bind(&path).unwrap();
        end_on_panic(Some(file));
        let thread = std::thread::Builder::new().name("tun-writer".to_owned());
        let _ = thread.spawn(|| panic!("two\nlines")).unwrap().join();
        unreachable!("the process has ended")
    }

    #[test]
    fn a_variable_that_is_not_set_gives_no_descriptor() {
        assert!(inherited_fd("CONVOY_TEST_NO_SUCH_FD").unwrap().is_none());
    }
}
