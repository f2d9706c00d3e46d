//! The namespaces as descriptors, and the way into them.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::sched::{CloneFlags, setns};

/// The user, mount and network namespace of a [`Namespace`](super::Namespace).
#[derive(Debug)]
pub struct Spaces([OwnedFd; 3]);

/// In the order in which they are entered.
const KINDS: [(&str, CloneFlags); 3] = [
    ("user", CloneFlags::CLONE_NEWUSER),
    ("mnt", CloneFlags::CLONE_NEWNS),
    ("net", CloneFlags::CLONE_NEWNET),
];

impl Spaces {
    /// Opens the namespaces of this process.
    pub(super) fn own() -> io::Result<Self> {
        let [user, mounts, network] =
            KINDS.map(|(kind, _)| File::open(format!("/proc/self/ns/{kind}")).map(OwnedFd::from));
        Ok(Self([user?, mounts?, network?]))
    }

    /// Takes the namespaces that another process has sent, in the order of [`Spaces::descriptors`]; `None` if they are
    /// not three.
    #[must_use]
    pub fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        descriptors.try_into().ok().map(Self)
    }

    /// To send them to another process.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.0.each_ref().map(AsFd::as_fd)
    }

    /// Moves this process inside. It then has all capabilities there, and the root directory as its working
    /// directory.
    ///
    /// # Errors
    /// `EINVAL` if the process has several threads; `EPERM` if its user has not made the namespaces.
    pub fn enter(&self) -> io::Result<()> {
        for (descriptor, (_, kind)) in self.0.iter().zip(KINDS) {
            setns(descriptor, kind)?;
        }
        Ok(())
    }
}
