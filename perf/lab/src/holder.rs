//! The processes behind a lab: forked, never exec'd, so that no other program is needed.
//!
//! The lab's program and its child talk over a socket pair. The child sets up, sends one
//! report with the descriptors it opened, and waits. End-of-file means that the program has
//! let go or has died: the child kills everything inside its namespaces and exits.
//!
//! The program may have several threads, so between `fork` and `_exit` the child makes
//! async-signal-safe calls only (signal-safety(7)): no allocation, no lock, no panic.

mod child;
mod report;

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    sys::{
        socket::{AddressFamily, SockFlag, SockType, socketpair},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};

use report::{Failed, incomplete};
pub(crate) use report::{Failure, Step};

/// A child of this process that goes when this is dropped, with everything inside its namespaces.
pub(crate) struct Holder {
    pid: Pid,
    /// `None` once the child has been told to go.
    control: Option<OwnedFd>,
}

/// What a namespace's holder opened inside and handed out.
pub(crate) struct Inside {
    pub(crate) network: OwnedFd,
    pub(crate) mounts: OwnedFd,
    /// An rtnetlink socket of the namespace.
    pub(crate) netlink: OwnedFd,
}

/// What a namespace's holder is to do; prepared before the fork, since the child may not allocate.
pub(crate) struct Plan<'a> {
    /// The user namespace to enter first.
    pub(crate) user: Option<BorrowedFd<'a>>,
    /// Where to mount a tmpfs.
    pub(crate) private_directories: &'a [CString],
    /// The process's name in `ps`; the kernel keeps 15 bytes.
    pub(crate) name: &'a CStr,
}

/// Starts the holder of a new network and mount namespace.
pub(crate) fn network_namespace(plan: &Plan<'_>) -> Result<(Holder, Inside), Failure> {
    let holder = Holder::start(|control| child::hold_network(control, plan))?;
    let fds: [OwnedFd; 3] = holder.hear()?.try_into().map_err(|_| incomplete())?;
    let [network, mounts, netlink] = fds;
    Ok((
        holder,
        Inside {
            network,
            mounts,
            netlink,
        },
    ))
}

/// Starts a process in a new user namespace, whose identities are still to be mapped.
pub(crate) fn user_namespace() -> Result<(Holder, OwnedFd), Failure> {
    let holder = Holder::start(child::hold_user)?;
    let fd = holder.hear()?.pop().ok_or_else(incomplete)?;
    Ok((holder, fd))
}

impl Holder {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Tells the process in a new user namespace that it is mapped; it then tries what the lab
    /// needs, since AppArmor gives out user namespaces in which nothing is allowed.
    pub(crate) fn probe(&self) -> Result<(), Failure> {
        let told = self.control.as_ref().map(|fd| nix::unistd::write(fd, &[0]));
        if let Some(Err(e)) = told {
            return Err((Step::Report, e.into()));
        }
        self.hear().map(|_| ())
    }

    fn start(work: impl FnOnce(RawFd) -> Result<(), Failed>) -> Result<Self, Failure> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .map_err(|e| (Step::Fork, e.into()))?;
        // SAFETY: the child makes async-signal-safe calls only, and never returns from here.
        match unsafe { fork() }.map_err(|e| (Step::Fork, e.into()))? {
            ForkResult::Parent { child: pid } => Ok(Self {
                pid,
                control: Some(ours),
            }),
            ForkResult::Child => child::run(|| work(theirs.as_raw_fd())),
        }
    }

    fn hear(&self) -> Result<Vec<OwnedFd>, Failure> {
        let control = self.control.as_ref().ok_or_else(incomplete)?;
        loop {
            match report::receive(control.as_fd()) {
                Err((_, e)) if e.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.control = None;
        // Another error means that somebody else has reaped it: it is gone either way.
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}
