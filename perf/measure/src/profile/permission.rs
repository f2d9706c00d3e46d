//! Kernel settings that decide how much of a process this user may see.

use std::fs;

use nix::unistd::geteuid;

/// Above this level, users do not see the kernel's part (Documentation/admin-guide/sysctl/kernel.rst).
const MOST_PARANOID: i32 = 1;
/// Words that appear in a refusal.
const REFUSALS: [&str; 5] = [
    "permitted",
    "permission",
    "access to perf",
    "eacces",
    "eperm",
];

/// Names the part of a profile that a setting hides, with the fix; `None` if nothing is hidden.
pub(super) fn note() -> Option<String> {
    let is_root = geteuid().is_root();
    let paranoid = setting("perf_event_paranoid");
    if !is_root && paranoid > MOST_PARANOID {
        return Some(format!(
            "The kernel's side is missing: `kernel.perf_event_paranoid` is {paranoid}, and above 1 users see \
             only their own code. Run as root, or `sudo sysctl kernel.perf_event_paranoid=1`."
        ));
    }
    let kptr_restrict = setting("kptr_restrict");
    (kptr_restrict > i32::from(is_root)).then(|| {
        format!(
            "The kernel's functions have no names: `kernel.kptr_restrict` is {kptr_restrict}; 0 shows their \
             addresses to everyone, 1 to root, 2 to nobody. `sudo sysctl kernel.kptr_restrict=0`."
        )
    })
}

/// The fix, if a tool `said` that it was refused; otherwise empty.
pub(super) fn hint(said: &str) -> &'static str {
    let said = said.to_lowercase();
    if !REFUSALS.iter().any(|word| said.contains(word)) {
        ""
    } else if geteuid().is_root() {
        " (fix: in a container, add CAP_PERFMON and CAP_SYS_PTRACE)"
    } else {
        " (fix: run as root; or, for a daemon of this user, `sudo sysctl kernel.perf_event_paranoid=1 \
         kernel.kptr_restrict=0 kernel.yama.ptrace_scope=0`)"
    }
}

fn setting(name: &str) -> i32 {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    text.map_or(0, |text| text.trim().parse().unwrap_or(0))
}
