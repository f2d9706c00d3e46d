//! Too little memory: found before the start, or named when something failed for it.

use std::{error::Error as StdError, fs, io, path::Path};

use convoy_lab::measure::available_memory;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::Error;

const MIB: u64 = 1_024 * 1_024;
/// Two daemons and three agents take 16 at their peak; their sockets take that much again and more.
const NEEDED_MIB: u64 = 64;
/// Both daemons' memory for a peer, and that of its configuration.
const PEER_KIB: u64 = 32;
/// Address space: threads' stacks and allocators reserve it, and use little.
const NEEDED_ADDRESSES_MIB: u64 = 1_024;

/// Fails when there is visibly less memory than a speed test with this many peers takes.
pub(super) fn check(peers: u32) -> Result<(), Error> {
    let needed = needed_mib(peers);
    let addresses = getrlimit(Resource::RLIMIT_AS)
        .ok()
        .filter(|(soft, _)| *soft != RLIM_INFINITY);
    let machine = available_memory().map(|bytes| bytes / MIB);
    let problem = if let Some(limit) =
        less(addresses.map(|(soft, _)| soft / MIB), NEEDED_ADDRESSES_MIB)
    {
        format!(
            "the limit of address space is {limit} MiB, {NEEDED_ADDRESSES_MIB} are needed (fix: \
             `ulimit -v unlimited`)"
        )
    } else if let Some(free) = less(machine, needed) {
        format!("{free} MiB of memory are free, {needed} are needed (fix: end other programs)")
    } else if let Some(free) = less(control_group_headroom(), needed) {
        format!(
            "{free} MiB are left of this control group's memory limit, {needed} are needed (fix: raise \
             the container's or the unit's limit: `docker run --memory`, `MemoryMax=`)"
        )
    } else {
        return Ok(());
    };
    Err(Error::Refused(problem))
}

fn less(available: Option<u64>, needed: u64) -> Option<u64> {
    available.filter(|&available| available < needed)
}

fn needed_mib(peers: u32) -> u64 {
    NEEDED_MIB + u64::from(peers) * PEER_KIB / 1_024
}

/// Adds the fix to an error that comes from a shortage.
pub(super) fn explain_shortage(error: Error) -> Error {
    let causes = std::iter::successors(Some(&error as &dyn StdError), |&cause| cause.source());
    let mut systems = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    let fix = match systems.find_map(io::Error::raw_os_error) {
        Some(libc::ENOMEM) => {
            "out of memory (fix: end other programs, or raise the limit: `ulimit -v unlimited`, the \
             container's memory)"
        }
        Some(libc::EAGAIN) => {
            "no more processes or threads (fix: raise `ulimit -u`, or the container's limit of processes)"
        }
        Some(libc::EMFILE | libc::ENFILE) => "no more open files (fix: raise `ulimit -n`)",
        _ => return error,
    };
    Error::Step {
        step: fix.to_owned(),
        source: error.into(),
    }
}

/// MiB that the tightest limit above this process leaves.
fn control_group_headroom() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let headrooms = [&VERSION_2, &VERSION_1].into_iter().filter_map(|files| {
        let group = groups
            .lines()
            .find_map(|line| Some(line.split_once(files.mark)?.1))?;
        let groups = Path::new(group).ancestors();
        groups
            .filter_map(|group| headroom(&Path::new(files.root).join(group), files))
            .min()
    });
    headrooms.min()
}

/// Where a version of control groups shows a group's memory.
struct Files {
    /// Before the group in a line of `/proc/self/cgroup`.
    mark: &'static str,
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the bytes of cached files, which count as used.
    cached: &'static str,
}

const VERSION_2: Files = Files {
    mark: "0::/",
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file ",
};

const VERSION_1: Files = Files {
    mark: ":memory:/",
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};

fn headroom(group: &Path, files: &Files) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let stat = read("memory.stat");
    // Cached files are given up when memory is needed.
    let cached = stat
        .lines()
        .find_map(|line| number(line.strip_prefix(files.cached)?));
    let used = number(&read(files.used))?.saturating_sub(cached.unwrap_or(0));
    Some(number(&read(files.limit))?.saturating_sub(used) / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Step as _;

    #[test]
    fn the_headroom_is_the_limit_less_the_memory_that_is_no_cache() {
        let group = tempfile::tempdir().unwrap();
        let write = |name, text| fs::write(group.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "209715200\n");
        assert_eq!(headroom(group.path(), &VERSION_2), None, "no limit");
        write("memory.max", "314572800\n");
        assert_eq!(headroom(group.path(), &VERSION_2), Some(100));
        write("memory.stat", "anon 1\ninactive_file 104857600\n");
        assert_eq!(headroom(group.path(), &VERSION_2), Some(200));
        assert_eq!((needed_mib(1), needed_mib(10_000)), (64, 376));
    }

    #[test]
    fn a_shortage_is_explained_and_other_errors_are_left_alone() {
        let text = |code| {
            let error = Err::<(), _>(io::Error::from_raw_os_error(code))
                .step("fork")
                .unwrap_err();
            explain_shortage(error).to_string()
        };
        assert!(text(libc::ENOMEM).contains("fix: end other programs"));
        assert!(text(libc::EAGAIN).contains("ulimit -u"));
        assert_eq!(text(libc::ENOENT), "fork");
    }
}
