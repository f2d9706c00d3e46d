//! Too little memory: said before the start, or when something failed for it.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::bail;

use super::host::memory_kib;

/// Two daemons, three agents and the kernel's buffers of sixteen megabytes and more.
const NEEDED_MIB: u64 = 160;

/// Fails when there is visibly less memory than a speed test takes.
pub(super) fn check() -> anyhow::Result<()> {
    let machine = memory_kib("MemAvailable").map(|kib| kib / 1024);
    if let Some(free) = machine.filter(|&free| free < NEEDED_MIB) {
        bail!("{free} MiB of memory are free, {NEEDED_MIB} are needed (fix: end other programs)");
    }
    if let Some(free) = control_group_headroom().filter(|&free| free < NEEDED_MIB) {
        bail!(
            "{free} MiB are left of this control group's memory limit, {NEEDED_MIB} are needed \
             (fix: raise the container's or the unit's limit: `docker run --memory`, `MemoryMax=`)"
        );
    }
    Ok(())
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

/// MiB that the tightest limit above this process leaves (cgroup v2).
fn control_group_headroom() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let ancestors = Path::new(group).ancestors();
    ancestors
        .filter_map(|group| headroom(&Path::new("/sys/fs/cgroup").join(group)))
        .min()
}

fn headroom(group: &Path) -> Option<u64> {
    let read = |name| -> Option<u64> {
        let text = fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse().ok()
    };
    // Files that are cached count as used, and are given up when memory is needed.
    let limit = read("memory.max")?;
    let used = read("memory.current")?.saturating_sub(inactive_files(group).unwrap_or(0));
    Some(limit.saturating_sub(used) / (1024 * 1024))
}

fn inactive_files(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("memory.stat")).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, bytes) = lines.find(|(name, _)| *name == "inactive_file")?;
    bytes.parse().ok()
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
        assert_eq!(headroom(group.path()), None, "no limit");
        write("memory.max", "314572800\n");
        assert_eq!(headroom(group.path()), Some(100));
        write("memory.stat", "anon 1\ninactive_file 104857600\n");
        assert_eq!(headroom(group.path()), Some(200));
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
