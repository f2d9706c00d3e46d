//! Too little memory: said before the start, or when something failed for it.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::bail;
use convoy_lab::measure::memory_kib;

const MIB: u64 = 1_024 * 1_024;
/// Two daemons and three agents take 16 at their peak, their sockets as much again and more.
const NEEDED_MIB: u64 = 64;
/// Both daemons' memory for a peer, and what it takes to tell them of it.
const PEER_KIB: u64 = 32;

/// Address space: what threads' stacks and allocators reserve, most of which is never used.
const NEEDED_ADDRESSES_MIB: u64 = 1_024;

/// Fails when there is visibly less memory than a speed test with so many peers takes.
pub(super) fn check(peers: u32) -> anyhow::Result<()> {
    let needed = needed_mib(peers);
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(limit) = address_space(&limits).filter(|&limit| limit < NEEDED_ADDRESSES_MIB) {
        bail!(
            "the limit of address space is {limit} MiB, {NEEDED_ADDRESSES_MIB} are needed (fix: \
             `ulimit -v unlimited`)"
        );
    }
    let machine = memory_kib("MemAvailable").map(|kib| kib / 1024);
    if let Some(free) = machine.filter(|&free| free < needed) {
        bail!("{free} MiB of memory are free, {needed} are needed (fix: end other programs)");
    }
    if let Some(free) = control_group_headroom().filter(|&free| free < needed) {
        bail!(
            "{free} MiB are left of this control group's memory limit, {needed} are needed \
             (fix: raise the container's or the unit's limit: `docker run --memory`, `MemoryMax=`)"
        );
    }
    Ok(())
}

fn needed_mib(peers: u32) -> u64 {
    NEEDED_MIB + u64::from(peers) * PEER_KIB / 1_024
}

/// Adds the fix to an error that comes from a shortage.
pub(super) fn explain_shortage(error: anyhow::Error) -> anyhow::Error {
    let code = error.chain().find_map(|cause| {
        let system = cause.downcast_ref::<io::Error>()?;
        system.raw_os_error()
    });
    match code {
        Some(libc::ENOMEM) => error.context(
            "out of memory (fix: end other programs, or raise the limit: `ulimit -v unlimited`, \
             the container's memory)",
        ),
        Some(libc::EAGAIN) => error.context(
            "no more processes or threads (fix: raise `ulimit -u`, or the container's limit of \
             processes)",
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            error.context("no more open files (fix: raise `ulimit -n`)")
        }
        _ => error,
    }
}

/// MiB of address space that a process may have; none without a limit.
fn address_space(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let values = lines.find_map(|line| line.strip_prefix("Max address space"))?;
    let bytes: u64 = values.split_whitespace().next()?.parse().ok()?;
    Some(bytes / MIB)
}

/// MiB that the tightest limit above this process leaves.
fn control_group_headroom() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let hierarchies = [(&VERSION_2, "0::/"), (&VERSION_1, ":memory:/")];
    let headrooms = hierarchies.into_iter().filter_map(|(files, mark)| {
        let group = groups
            .lines()
            .find_map(|line| Some(line.split_once(mark)?.1))?;
        let ancestors = Path::new(group).ancestors();
        ancestors
            .filter_map(|group| headroom(&Path::new(files.root).join(group), files))
            .min()
    });
    headrooms.min()
}

/// Where a version of control groups tells a group's memory.
struct Files {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the bytes of cached files, which count as used.
    cached: &'static str,
}

const VERSION_2: Files = Files {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file",
};

const VERSION_1: Files = Files {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file",
};

fn headroom(group: &Path, files: &Files) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let number = |name| -> Option<u64> { read(name)?.trim().parse().ok() };
    let cached = || -> Option<u64> {
        let text = read("memory.stat")?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, bytes) = lines.find(|(name, _)| *name == files.cached)?;
        bytes.parse().ok()
    };
    // Cached files are given up when memory is needed.
    let used = number(files.used)?.saturating_sub(cached().unwrap_or(0));
    Some(number(files.limit)?.saturating_sub(used) / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headroom_is_what_the_limit_leaves_without_caches() {
        let group = tempfile::tempdir().unwrap();
        let write = |name, text| fs::write(group.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "209715200\n");
        assert_eq!(headroom(group.path(), &VERSION_2), None, "no limit");
        write("memory.max", "314572800\n");
        assert_eq!(headroom(group.path(), &VERSION_2), Some(100));
        write("memory.stat", "anon 1\ninactive_file 104857600\n");
        assert_eq!(headroom(group.path(), &VERSION_2), Some(200));
    }

    #[test]
    fn ten_thousand_peers_need_more_than_one() {
        assert_eq!((needed_mib(1), needed_mib(10_000)), (64, 376));
    }

    #[test]
    fn a_limit_of_the_address_space_is_read() {
        let limits =
            "Limit   Soft   Hard   Units\nMax address space   104857600   unlimited   bytes\n";
        assert_eq!(address_space(limits), Some(100));
        assert_eq!(
            address_space(&limits.replace("104857600", "unlimited")),
            None
        );
    }

    #[test]
    fn a_shortage_is_explained_and_other_errors_are_left_alone() {
        let error = |code| anyhow::Error::from(io::Error::from_raw_os_error(code)).context("fork");
        let text = |code| format!("{:#}", explain_shortage(error(code)));
        assert!(text(libc::ENOMEM).contains("fix: end other programs"));
        assert!(text(libc::EAGAIN).contains("ulimit -u"));
        assert!(!text(libc::ENOENT).contains("fix"));
    }
}
