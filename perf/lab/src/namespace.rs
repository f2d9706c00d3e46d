//! One namespace: programs and code inside it.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use nix::{
    sched::{CloneFlags, setns},
    unistd::Pid,
};

use crate::{error::LabError, holder::Inside, link::Link, netlink::Netlink, privilege::Privilege};

/// A network namespace with its own `/run`, kept alive by a holder process.
///
/// Clones are the same namespace. It is empty and of no more use once its [`Lab`](crate::Lab)
/// has been dropped.
#[derive(Clone)]
pub struct Namespace(Arc<Shared>);

struct Shared {
    label: String,
    holder: Pid,
    doors: Arc<Doors>,
    netlink: Mutex<Netlink>,
}

/// What there is to enter.
struct Doors {
    privilege: Arc<Privilege>,
    network: OwnedFd,
    mounts: OwnedFd,
}

impl Namespace {
    pub(crate) fn new(
        label: String,
        holder: Pid,
        inside: Inside,
        privilege: Arc<Privilege>,
    ) -> Self {
        let Inside {
            network,
            mounts,
            netlink,
        } = inside;
        Self(Arc::new(Shared {
            label,
            holder,
            doors: Arc::new(Doors {
                privilege,
                network,
                mounts,
            }),
            netlink: Mutex::new(Netlink::new(netlink)),
        }))
    }

    /// A command that runs inside: same files and working directory, but this namespace's
    /// network and `/run`. Without root, it runs as root of the lab's user namespace.
    ///
    /// Whatever it starts is killed with the lab, also what puts itself into the background.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let doors = Arc::clone(&self.0.doors);
        // SAFETY: getppid(2) has no failure and no precondition; so has getpid(2).
        let parent = unsafe { libc::getpid() };
        let mut command = Command::new(program);
        // SAFETY: `enter` makes async-signal-safe calls only, as a forked child must.
        unsafe { command.pre_exec(move || doors.enter(parent)) };
        command
    }

    /// Runs `f` on a new thread that has entered the network namespace: for sockets, which stay
    /// in the namespace in which they were opened. Files, `/run` too, are the caller's.
    ///
    /// A panic in `f` continues in the caller.
    ///
    /// # Errors
    ///
    /// Without root: a thread may not enter a user namespace; use [`Namespace::command`].
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let doors = &self.0.doors;
        if doors.privilege.user_namespace().is_some() {
            return Err(LabError::RunNeedsRoot);
        }
        let refused = |source: io::Error| LabError::Namespace {
            label: self.0.label.clone(),
            step: "enter it on a new thread",
            source,
        };
        thread::scope(|scope| {
            let inside = || {
                setns(&doors.network, CloneFlags::CLONE_NEWNET)?;
                Ok(f())
            };
            let thread = thread::Builder::new()
                .name(format!("lab:{}", self.0.label))
                .spawn_scoped(scope, inside)
                .map_err(refused)?;
            match thread.join() {
                Ok(outcome) => outcome.map_err(|e: nix::Error| refused(e.into())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// The interfaces, addresses and routes inside.
    #[must_use]
    pub fn link(&self) -> Link<'_> {
        Link::new(&self.0.label, &self.0.netlink)
    }

    /// What [`Lab::namespace`](crate::Lab::namespace) was given.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// The holder, for `nsenter --target`.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.0.holder
    }

    /// Where this process sees the namespace's `/var/run`.
    #[must_use]
    pub fn run_directory(&self) -> PathBuf {
        // Resolved here: an absolute link below /proc/PID/root would lead to this process's root.
        let var_run = std::fs::canonicalize("/var/run").unwrap_or_else(|_| "/run".into());
        let mut seen = PathBuf::from(format!("/proc/{}/root", self.0.holder));
        seen.extend(var_run.components().skip(1));
        seen
    }

    pub(crate) fn network(&self) -> impl AsFd {
        &self.0.doors.network
    }
}

impl Doors {
    /// Moves this process inside. Called between fork and exec.
    fn enter(&self, parent: libc::pid_t) -> io::Result<()> {
        // Until it is inside, the holder could not find this process if the parent died now. The
        // death signal hangs on the parent's thread, so it must not stay.
        die_with_parent(true)?;
        // SAFETY: a plain system call.
        if unsafe { libc::getppid() } != parent {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut path = [0u8; libc::PATH_MAX as usize];
        // SAFETY: the kernel writes at most the length of `path`, and ends it with NUL.
        let length = unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) };
        if let Some(user) = self.privilege.user_namespace() {
            setns(user, CloneFlags::CLONE_NEWUSER)?;
        }
        setns(&self.mounts, CloneFlags::CLONE_NEWNS)?;
        setns(&self.network, CloneFlags::CLONE_NEWNET)?;
        // Entering a mount namespace leads to its root directory.
        if let (1.., Ok(directory)) = (length, CStr::from_bytes_until_nul(&path)) {
            nix::unistd::chdir(directory)?;
        }
        die_with_parent(false)
    }
}

fn die_with_parent(on: bool) -> io::Result<()> {
    let signal = if on { libc::SIGKILL } else { 0 };
    // SAFETY: a plain system call.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
