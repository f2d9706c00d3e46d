//! The processes behind a lab: forked, never exec'd, so that no other program is needed.
//!
//! The lab's program and its child talk over a socket pair. The child sets up, sends one
//! [`Report`] and the descriptors it opened, and waits. End-of-file means that the program has
//! let go or has died: the child kills everything inside its namespaces and exits.
//!
//! The program may have several threads, so between `fork` and `_exit` the child makes
//! async-signal-safe calls only (signal-safety(7)): no allocation, no lock, no panic.

use std::{
    ffi::{CStr, CString},
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use nix::{
    sys::{
        socket::{
            AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
        },
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};

use crate::sweep;

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
    let holder = Holder::start(|control| hold_network(control, plan))?;
    let fds: [OwnedFd; 3] = holder.hear()?.try_into().map_err(|_| short_report())?;
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
    let holder = Holder::start(hold_user)?;
    let fd = holder.hear()?.pop().ok_or_else(short_report)?;
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

    fn start(child: impl FnOnce(RawFd) -> Result<(), Failed>) -> Result<Self, Failure> {
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
            ForkResult::Child => {
                detach();
                if let Err(failed) = child(theirs.as_raw_fd()) {
                    report(CONTROL, failed, &[]);
                }
                // SAFETY: _exit ends the process without running anything of the parent's.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Waits for the child's report, and takes what it opened.
    fn hear(&self) -> Result<Vec<OwnedFd>, Failure> {
        let failure = |e: io::Error| (Step::Report, e);
        let mut bytes = [0u8; REPORT_LEN];
        let mut iov = [io::IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!([RawFd; 3]);
        let control = self.control.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let message = recvmsg::<()>(
            control,
            &mut iov,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )
        .map_err(|e| failure(e.into()))?;
        let length = message.bytes;
        let mut fds = Vec::new();
        for part in message.cmsgs().map_err(|e| failure(e.into()))? {
            if let ControlMessageOwned::ScmRights(received) = part {
                // SAFETY: the kernel has just made these descriptors for us; nobody else has them.
                fds.extend(
                    received
                        .into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        if length != REPORT_LEN {
            return Err(short_report());
        }
        let [step, errno @ ..] = bytes;
        match Step::ALL.get(usize::from(step)) {
            Some(Step::Done) => Ok(fds),
            Some(step) => Err((
                *step,
                io::Error::from_raw_os_error(i32::from_ne_bytes(errno)),
            )),
            None => Err(short_report()),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.control = None;
        // An error means that somebody else has reaped it: it is gone either way.
        let _ = waitpid(self.pid, None);
    }
}

fn short_report() -> Failure {
    (Step::Report, io::ErrorKind::UnexpectedEof.into())
}

// ---- From here on: in the child. ----

/// Where the child keeps its end of the socket pair: the only descriptor of the parent's it keeps.
const CONTROL: RawFd = 0;

/// A step and an errno: what [`report`] sends.
const REPORT_LEN: usize = 1 + size_of::<i32>();

/// A step and the errno that it ended in.
struct Failed(Step, i32);

/// Leaves the parent's terminal, and keeps its signal handlers from running here.
fn detach() {
    // SAFETY: plain system calls; the signal set is initialised by sigfillset before it is read.
    unsafe {
        let mut all = mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, ptr::null_mut());
        libc::setsid();
    }
}

fn hold_network(control: RawFd, plan: &Plan<'_>) -> Result<(), Failed> {
    let entered = match plan.user {
        // SAFETY: setns on a descriptor that the parent keeps open across the fork.
        Some(user) => unsafe { libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER) },
        None => 0,
    };
    keep_only(control);
    check(Step::EnterUser, entered)?;
    // SAFETY: plain system calls with constant or NUL-terminated arguments.
    let fds = unsafe {
        libc::prctl(libc::PR_SET_NAME, plan.name.as_ptr());
        check(
            Step::UnshareNetwork,
            libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS),
        )?;
        mount_privately(plan.private_directories)?;
        // Else the holder would pin the parent's working directory.
        libc::chdir(c"/".as_ptr());
        [
            open(c"/proc/self/ns/net")?,
            open(c"/proc/self/ns/mnt")?,
            check(
                Step::OpenNetlink,
                libc::socket(
                    libc::AF_NETLINK,
                    libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                    libc::NETLINK_ROUTE,
                ),
            )?,
        ]
    };
    report(CONTROL, Failed(Step::Done, 0), &fds);
    // Else the holder would keep its own namespaces alive for those who look at descriptors.
    keep_only(CONTROL);
    wait_for_end_of_file();
    sweep::kill_everything_inside();
    Ok(())
}

fn hold_user(control: RawFd) -> Result<(), Failed> {
    keep_only(control);
    // SAFETY: plain system calls with constant arguments.
    unsafe {
        check(Step::UnshareUser, libc::unshare(libc::CLONE_NEWUSER))?;
        let user = open(c"/proc/self/ns/user")?;
        report(CONTROL, Failed(Step::Done, 0), &[user]);
        let mut mapped = 0u8;
        if libc::read(CONTROL, ptr::from_mut(&mut mapped).cast(), 1) != 1 {
            return Ok(());
        }
        check(
            Step::UnshareNetwork,
            libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS),
        )?;
    }
    report(CONTROL, Failed(Step::Done, 0), &[]);
    Ok(())
}

/// Moves `control` to [`CONTROL`] and closes everything else, above all other holders' sockets:
/// one copy too many and end-of-file would never come.
fn keep_only(control: RawFd) {
    // SAFETY: this process is single-threaded and owns all its descriptors; none is used later
    // but CONTROL and those opened after this.
    unsafe {
        libc::dup2(control, CONTROL);
        libc::syscall(libc::SYS_close_range, CONTROL + 1, libc::c_uint::MAX, 0);
    }
}

fn mount_privately(directories: &[CString]) -> Result<(), Failed> {
    // SAFETY: all pointers are NUL-terminated strings or null where mount(2) allows it.
    unsafe {
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let root = c"/".as_ptr();
        let none = ptr::null();
        check(
            Step::PrivateMounts,
            libc::mount(none, root, none, private, none.cast()),
        )?;
        for directory in directories {
            let mounted = libc::mount(
                c"tmpfs".as_ptr(),
                directory.as_ptr(),
                c"tmpfs".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV,
                c"mode=0755,size=16m".as_ptr().cast(),
            );
            check(Step::MountRun, mounted)?;
        }
    }
    Ok(())
}

fn open(path: &CStr) -> Result<RawFd, Failed> {
    // SAFETY: `path` is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    check(Step::OpenNamespaces, fd)
}

fn check(step: Step, returned: libc::c_int) -> Result<libc::c_int, Failed> {
    if returned < 0 {
        // SAFETY: errno's location is always readable by its own thread.
        Err(Failed(step, unsafe { *libc::__errno_location() }))
    } else {
        Ok(returned)
    }
}

/// Sends `outcome` and `fds` (at most three). An error means that the parent has gone: then
/// end-of-file is next.
fn report(control: RawFd, outcome: Failed, fds: &[RawFd]) {
    let mut bytes = [0u8; REPORT_LEN];
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

fn wait_for_end_of_file() {
    let mut byte = 0u8;
    // SAFETY: one byte is read into one byte.
    while unsafe { libc::read(CONTROL, ptr::from_mut(&mut byte).cast(), 1) } > 0 {}
}
