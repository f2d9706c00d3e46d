//! Process-wide concerns: core dumps, inherited file descriptors, freed memory.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use anyhow::{Context, ensure};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::{
        prctl,
        resource::{Resource, setrlimit},
    },
    unistd::geteuid,
};
use tracing::warn;

/// This program, wherever it is by now, and whether or not its directories may be entered.
pub const PROGRAM: &str = "/proc/self/exe";

/// Turns off core dumps, which would hold private keys.
///
/// A limit of 0 stops only dumps to files: a program named by the kernel's `core_pattern` would
/// still get one (core(5)). A limit of 1 byte stops both, and the filter keeps all memory out of a
/// dump that happens anyway, such as while `convoy profile` looks on.
pub fn forbid_core_dumps() {
    // If the limit is already 0, raising it may not be permitted.
    let limited =
        setrlimit(Resource::RLIMIT_CORE, 1, 1).or_else(|_| setrlimit(Resource::RLIMIT_CORE, 0, 0));
    if let Err(error) = limited {
        warn!("cannot turn off core dumps: {error}");
    }
    // Some kernels are built without it.
    let _ = fs::write("/proc/self/coredump_filter", "0");
}

/// Names this process like the program: the kernel calls one that was executed as `/proc/self/exe` `exe`.
pub fn name_like_the_program() {
    // Only for those who look at the list of processes.
    let _ = prctl::set_name(c"convoy");
}

/// Leaves only absolute directories in root's `PATH`. An empty or relative one is the working directory, where anybody
/// may have put a program. `absolute` makes the path to search instead.
///
/// Call it first: the environment must not change while other threads read it.
pub fn search_absolute_directories(absolute: impl FnOnce() -> OsString) {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_safe = env::split_paths(&path).all(|place| place.is_absolute());
    if geteuid().is_root() && !is_safe {
        // SAFETY: the process has one thread.
        unsafe { env::set_var("PATH", absolute()) };
    }
}

/// Closes the descriptors that the caller has left open beside the standard streams, except those whose numbers are in
/// these environment variables. They would last as long as this process, and reach a tunnel that has no rights.
///
/// Call it before the process opens anything.
pub fn close_inherited(handed_over: &[&str]) {
    let number = |name| env::var(name).ok()?.parse::<RawFd>().ok();
    let standard_streams = [0, 1, 2].into_iter();
    close_all_but(standard_streams.chain(handed_over.iter().filter_map(number)));
}

/// Closes all other descriptors. Nothing may use one of them afterwards.
pub(crate) fn close_all_but(kept: impl IntoIterator<Item = RawFd>) {
    let kept: BTreeSet<_> = kept.into_iter().filter(|fd| *fd >= 0).collect();
    let mut first = 0;
    for fd in kept {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the callers own no descriptor in the range that they still use.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 {
        return;
    }
    // Linux before 5.9.
    let open = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let open = open.filter_map(|file| file.file_name().to_str()?.parse::<RawFd>().ok());
    for fd in open.collect::<Vec<_>>() {
        if (first..=last).contains(&fd) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// Takes over the open file descriptor whose number is in the environment variable `name`.
///
/// Call it once per name, before the process has other threads.
pub fn inherited_fd(name: &str) -> anyhow::Result<Option<OwnedFd>> {
    let number = match env::var(name) {
        Ok(number) if !number.is_empty() => number,
        _ => return Ok(None),
    };
    let number: RawFd = number
        .parse()
        .with_context(|| format!("{name} is not a number"))?;
    ensure!(number > 2, "{name} is one of the standard streams");
    // SAFETY: whoever set the variable handed the descriptor over. This process owns only
    // descriptors that it opened itself, and this function is called once per name.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    if let Err(error) = fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
        // Dropping it would close a descriptor that is not open or not ours.
        std::mem::forget(fd);
        return Err(error).with_context(|| format!("{name} is not an open file descriptor"));
    }
    Ok(Some(fd))
}

/// Blocks of at least this many bytes get a mapping of their own and go back to the kernel when
/// freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 128 << 10;

/// Keeps the allocator from holding on to memory that a large request needed, and bounds the time of a call.
///
/// Without `M_MXFAST`, small blocks that are freed stay apart until a call merges all of them. If ten
/// thousand peers have just lost their sessions, that call takes milliseconds, on the data thread.
///
/// By default, freeing a large block raises these thresholds for good, up to 32 and 64 MiB
/// (mallopt(3)), and `malloc_trim` does not trim the top of a thread's heap.
pub fn bound_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: all parameters are valid for mallopt, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
        libc::mallopt(libc::M_TRIM_THRESHOLD, OWN_MAPPING);
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Returns freed memory to the kernel; after a large request the allocator would keep it.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim has no preconditions and locks what it touches.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unset_variable_gives_no_descriptor() {
        assert!(inherited_fd("CONVOY_TEST_NO_SUCH_FD").unwrap().is_none());
    }
}
