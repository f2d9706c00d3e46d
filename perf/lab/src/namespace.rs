//! A namespace: programs and code inside it.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, chdir, getpid, getppid};

use crate::child::close_internet_sockets;
use crate::error::{Doing as _, LabError, Result};
use crate::holder::run_directory;

/// A network namespace with its own `/run`, kept alive by a holder process.
///
/// Clones refer to the same namespace. Once its [`Lab`](crate::Lab) has been dropped, it is empty and
/// useless.
#[derive(Clone)]
pub struct Namespace(Arc<Inner>);

struct Inner {
    label: String,
    holder: Pid,
    user: Option<Arc<OwnedFd>>,
    network: File,
    mounts: File,
}

impl Namespace {
    pub(crate) fn open(label: &str, holder: Pid, user: Option<Arc<OwnedFd>>) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            label: label.to_owned(),
            holder,
            user,
            network: File::open(format!("/proc/{holder}/ns/net"))?,
            mounts: File::open(format!("/proc/{holder}/ns/mnt"))?,
        })))
    }

    /// A command that runs inside: with the same files and working directory, but this namespace's
    /// network and `/run`. Without root, it runs as root of the lab's user namespace.
    ///
    /// Everything it starts dies with the lab, including processes that detach.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let (inside, parent) = (Arc::clone(&self.0), getpid());
        let mut command = Command::new(program);
        // SAFETY: `enter` makes async-signal-safe calls only, as required of a forked child.
        unsafe { command.pre_exec(move || inside.enter(parent)) };
        command
    }

    /// Runs `f` on a new thread that has entered the network namespace. Use it for sockets, which stay in
    /// the namespace in which they were opened. Files, including `/run`, are the caller's.
    ///
    /// A panic in `f` propagates to the caller.
    ///
    /// # Errors
    /// Without root, because a thread may not enter a user namespace; use [`Namespace::command`].
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        if self.0.user.is_some() {
            return Err(LabError::RunNeedsRoot);
        }
        let inside = || -> io::Result<T> {
            setns(&self.0.network, CloneFlags::CLONE_NEWNET)?;
            Ok(f())
        };
        let outcome = thread::scope(|scope| scope.spawn(inside).join());
        outcome
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .doing(self.step("enter it on a new thread"))
    }

    /// The label given to [`Lab::namespace`](crate::Lab::namespace).
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// The holder, for `nsenter --target`.
    pub fn pid(&self) -> Pid {
        self.0.holder
    }

    /// Path of the namespace's `/var/run` for this process.
    pub fn run_directory(&self) -> PathBuf {
        // Resolved here: an absolute link below /proc/PID/root would lead into this process's root.
        let mut seen = PathBuf::from(format!("/proc/{}/root", self.0.holder));
        seen.extend(run_directory().components().skip(1));
        seen
    }

    /// Names a step in this namespace, for an error.
    pub(crate) fn step(&self, step: &str) -> String {
        format!("namespace {}: {step}", self.label())
    }
}

impl Inner {
    /// Moves this process inside. Called between fork and exec.
    fn enter(&self, parent: Pid) -> io::Result<()> {
        // Until the process is inside, the holder cannot find it, so it must die if the parent dies now. The
        // death signal is tied to the parent's thread, so it must be reset afterwards.
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
        close_internet_sockets();
        let mut path = [0u8; libc::PATH_MAX as usize];
        // SAFETY: the kernel writes at most the length of `path`, and ends it with NUL.
        let length = unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) };
        if let Some(user) = &self.user {
            setns(user, CloneFlags::CLONE_NEWUSER)?;
        }
        setns(&self.mounts, CloneFlags::CLONE_NEWNS)?;
        setns(&self.network, CloneFlags::CLONE_NEWNET)?;
        // Entering a mount namespace changes to its root directory. What is mounted there may cover this one.
        if let (1.., Ok(directory)) = (length, CStr::from_bytes_until_nul(&path))
            && let Err(error) = chdir(directory)
            && error != Errno::ENOENT
        {
            return Err(error.into());
        }
        Ok(set_pdeathsig(None)?)
    }
}
