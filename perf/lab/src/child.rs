//! Child processes: between fork and exec, and at their end.

use std::{os::fd::RawFd, process::Child};

use nix::unistd::Pid;

/// Descriptors that are looked at: as many as a process may have by default.
const DESCRIPTORS: RawFd = 1024;

/// A child process that is killed when dropped.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it has already been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn process_id(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Closes the copies of Internet sockets that `exec` would close anyway. Makes system calls only, as required of a
/// forked child.
///
/// A child may need tenths of a second to enter or create namespaces. Meanwhile its copies would keep the ports of
/// sockets that other threads of the program close.
pub(crate) fn close_internet_sockets() {
    for fd in 3..DESCRIPTORS {
        // SAFETY: reads flags of a descriptor, which may be closed.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        let is_closed_by_exec = flags != -1 && flags & libc::FD_CLOEXEC != 0;
        if is_closed_by_exec && is_internet_socket(fd) {
            // SAFETY: between fork and exec, this process uses no socket.
            unsafe { libc::close(fd) };
        }
    }
}

fn is_internet_socket(fd: RawFd) -> bool {
    let mut domain: libc::c_int = 0;
    let mut length = size_of_val(&domain) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `domain`. `fd` may be something else than a socket.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut length,
        )
    };
    result == 0 && [libc::AF_INET, libc::AF_INET6].contains(&domain)
}
