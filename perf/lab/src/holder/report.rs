//! What a child tells its parent: how far it came, and the descriptors that it opened.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// A step and an errno: one message.
const LENGTH: usize = 1 + size_of::<i32>();

/// What a child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Fork,
    Report,
    UnshareUser,
    MapIds,
    EnterUser,
    UnshareNetwork,
    PrivateMounts,
    MountRun,
    OpenNamespaces,
    OpenNetlink,
    Done,
}

impl Step {
    const ALL: [Self; 11] = [
        Self::Fork,
        Self::Report,
        Self::UnshareUser,
        Self::MapIds,
        Self::EnterUser,
        Self::UnshareNetwork,
        Self::PrivateMounts,
        Self::MountRun,
        Self::OpenNamespaces,
        Self::OpenNetlink,
        Self::Done,
    ];

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Fork => "start the process that holds it",
            Self::Report => "hear from the process that holds it",
            Self::UnshareUser => "unshare the user namespace",
            Self::MapIds => "map the user to root inside",
            Self::EnterUser => "enter the user namespace",
            Self::UnshareNetwork => "unshare the network and mount namespaces",
            Self::PrivateMounts => "make the mounts private",
            Self::MountRun => "mount a tmpfs on /run",
            Self::OpenNamespaces => "open its own namespaces in /proc",
            Self::OpenNetlink => "open a netlink socket",
            Self::Done => "finish",
        }
    }
}

/// A step and the error that it ended in.
pub(crate) type Failure = (Step, io::Error);

/// A [`Failure`] in the child, where there is only errno.
pub(super) struct Failed(pub(super) Step, pub(super) i32);

/// Waits for the child's message, and takes what it opened.
pub(super) fn receive(control: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, Failure> {
    let failure = |e: nix::Error| (Step::Report, e.into());
    let mut bytes = [0u8; LENGTH];
    let mut iov = [io::IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!([RawFd; 3]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message =
        recvmsg::<()>(control.as_raw_fd(), &mut iov, Some(&mut space), flags).map_err(failure)?;
    let length = message.bytes;
    let mut fds = Vec::new();
    for part in message.cmsgs().map_err(failure)? {
        if let ControlMessageOwned::ScmRights(received) = part {
            // SAFETY: the kernel has just made these descriptors for us; nobody else has them.
            fds.extend(
                received
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    let [step, errno @ ..] = bytes;
    match Step::ALL.get(usize::from(step)) {
        Some(Step::Done) if length == LENGTH => Ok(fds),
        Some(step) if length == LENGTH => Err((
            *step,
            io::Error::from_raw_os_error(i32::from_ne_bytes(errno)),
        )),
        _ => Err(incomplete()),
    }
}

/// The child went without a word, or said something else.
pub(super) fn incomplete() -> Failure {
    (Step::Report, io::ErrorKind::UnexpectedEof.into())
}

/// Sends `outcome` and `fds` (at most three). Called in the child.
///
/// An error means that the parent has gone: then end-of-file is next.
pub(super) fn send(control: RawFd, outcome: Failed, fds: &[RawFd]) {
    let mut bytes = [0u8; LENGTH];
    let (step, errno) = bytes.split_at_mut(1);
    step.copy_from_slice(&[outcome.0 as u8]);
    errno.copy_from_slice(&outcome.1.to_ne_bytes());
    let mut iov = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // u64s, for the alignment of a cmsghdr; more than CMSG_SPACE of three descriptors.
    let mut space = [0u64; 8];
    // SAFETY: the message's pointers are to locals that outlive the call; the descriptors are
    // written inside `space`, which holds three.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        if !fds.is_empty() {
            let payload = size_of_val(fds) as libc::c_uint;
            message.msg_control = space.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(payload) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
            ptr::copy_nonoverlapping(
                fds.as_ptr().cast(),
                libc::CMSG_DATA(header),
                payload as usize,
            );
        }
        libc::sendmsg(control, &message, libc::MSG_NOSIGNAL);
    }
}
