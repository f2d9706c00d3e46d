//! The child's side: between fork and `_exit`.

use std::{
    ffi::{CStr, CString},
    mem,
    os::fd::{AsRawFd, RawFd},
    ptr,
};

use super::{
    Plan,
    report::{Failed, Step, send},
};
use crate::sweep;

/// Where the child keeps its end of the socket pair: the only descriptor of the parent's it keeps.
const CONTROL: RawFd = 0;

/// Does `work`, which first has to move the socket to [`CONTROL`]; reports if it fails.
pub(super) fn run(work: impl FnOnce() -> Result<(), Failed>) -> ! {
    detach();
    if let Err(failed) = work() {
        send(CONTROL, failed, &[]);
    }
    // SAFETY: _exit ends the process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// Makes a network and a mount namespace, hands them out, and holds them until end-of-file.
pub(super) fn hold_network(control: RawFd, plan: &Plan<'_>) -> Result<(), Failed> {
    let entered = plan.user.map_or(Ok(0), |user| {
        // SAFETY: setns on a descriptor that the parent keeps open across the fork.
        let returned = unsafe { libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER) };
        check(Step::EnterUser, returned)
    });
    keep_only(control);
    entered?;
    // SAFETY: plain system calls with constant or NUL-terminated arguments.
    let fds = unsafe {
        libc::prctl(libc::PR_SET_NAME, plan.name.as_ptr());
        check(
            Step::UnshareNetwork,
            libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS),
        )?;
        prefer_cubic();
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
    send(CONTROL, Failed(Step::Done, 0), &fds);
    // Else the holder would keep its own namespaces alive for those who look at descriptors.
    keep_only(CONTROL);
    wait_for_end_of_file();
    sweep::kill_everything_inside();
    Ok(())
}

/// Makes a user namespace, hands it out, and once told that it is mapped, tries what a lab needs.
pub(super) fn hold_user(control: RawFd) -> Result<(), Failed> {
    keep_only(control);
    // SAFETY: plain system calls with constant arguments.
    unsafe {
        check(Step::UnshareUser, libc::unshare(libc::CLONE_NEWUSER))?;
        let user = open(c"/proc/self/ns/user")?;
        send(CONTROL, Failed(Step::Done, 0), &[user]);
        let mut mapped = 0u8;
        if libc::read(CONTROL, ptr::from_mut(&mut mapped).cast(), 1) != 1 {
            return Ok(());
        }
        check(
            Step::UnshareNetwork,
            libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS),
        )?;
    }
    send(CONTROL, Failed(Step::Done, 0), &[]);
    Ok(())
}

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

/// Makes TCP inside use the kernel's default congestion control. A new namespace has the host's: with
/// BBR, which paces itself, processors stay idle that a tunnel would use. Where the host keeps cubic
/// from its users, nothing changes; [`crate::measure::Host`] tells which it is.
fn prefer_cubic() {
    let setting = c"/proc/sys/net/ipv4/tcp_congestion_control";
    // SAFETY: `setting` is NUL-terminated, and as many bytes are written as there are.
    unsafe {
        let fd = libc::open(setting.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(fd, c"cubic".as_ptr().cast(), 5);
        libc::close(fd);
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

fn wait_for_end_of_file() {
    let mut byte = 0u8;
    // SAFETY: one byte is read into one byte.
    while unsafe { libc::read(CONTROL, ptr::from_mut(&mut byte).cast(), 1) } > 0 {}
}
