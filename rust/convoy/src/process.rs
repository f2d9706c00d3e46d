//! What concerns the process as a whole: core dumps, inherited file descriptors, freed memory.

use std::{
    env, fs,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use anyhow::{Context, ensure};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::resource::{Resource, setrlimit},
};
use tracing::warn;

/// A core dump would hold private keys.
///
/// A limit of 0 stops only dumps to files: a program that the kernel's `core_pattern` names would
/// still get one (core(5)). A limit of 1 byte stops both. And should there be a dump after all, no
/// memory is in it. `PR_SET_DUMPABLE` would do it too, but would also keep the user's own `perf` away.
pub(crate) fn forbid_core_dumps() {
    // Whoever has set the limit to 0 before may have taken away the right to raise it.
    let limited =
        setrlimit(Resource::RLIMIT_CORE, 1, 1).or_else(|_| setrlimit(Resource::RLIMIT_CORE, 0, 0));
    if let Err(error) = limited {
        warn!("cannot turn core dumps off: {error}");
    }
    // Kernels are built without it.
    let _ = fs::write("/proc/self/coredump_filter", "0");
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

/// From this size on, in bytes, a block is the kernel's own, and goes back to it when it is freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 128 << 10;

/// Keeps what was once needed for a large request from staying in the allocator's hands.
///
/// Left alone, glibc raises both limits to 32 and 64 MiB, for good, when so large a block is freed
/// (mallopt(3)), and `malloc_trim` does not look at the free end of a thread's heap.
pub(crate) fn bound_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both are numbers that mallopt takes, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
        libc::mallopt(libc::M_TRIM_THRESHOLD, OWN_MAPPING);
    }
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
    use super::*;

    #[test]
    fn a_variable_that_is_not_set_gives_no_descriptor() {
        assert!(inherited_fd("CONVOY_TEST_NO_SUCH_FD").unwrap().is_none());
    }
}
