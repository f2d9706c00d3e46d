//! The kernel's settings that decide how much of a process this user may see.

use std::fs;

use nix::unistd::geteuid;

/// Above it, users do not see the kernel's side (Documentation/admin-guide/sysctl/kernel.rst).
const MOST_PARANOID: i32 = 1;
/// Words of a refusal.
const REFUSALS: [&str; 5] = [
    "permitted",
    "permission",
    "access to perf",
    "eacces",
    "eperm",
];

#[derive(Debug, Clone, Copy)]
struct Settings {
    is_root: bool,
    /// `kernel.perf_event_paranoid`.
    paranoid: i32,
    /// `kernel.kptr_restrict`: 0 shows the kernel's addresses, 1 to root, 2 to nobody.
    kptr_restrict: i32,
    /// `kernel.yama.ptrace_scope`: above 0, users trace only what they have started.
    ptrace_scope: i32,
}

/// The part of a profile that a setting hides, with the fix; none where nothing is hidden.
pub(super) fn note() -> Option<String> {
    Settings::read().note()
}

/// The fix for a refusal that a tool `said`; empty where it says something else.
pub(super) fn hint(said: &str) -> String {
    Settings::read().hint(said)
}

impl Settings {
    fn read() -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
            text.ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0)
        };
        Self {
            is_root: geteuid().is_root(),
            paranoid: number("perf_event_paranoid"),
            kptr_restrict: number("kptr_restrict"),
            ptrace_scope: number("yama/ptrace_scope"),
        }
    }

    fn note(self) -> Option<String> {
        if !self.is_root && self.paranoid > MOST_PARANOID {
            return Some(format!(
                "The kernel's side is missing: `kernel.perf_event_paranoid` is {}, and above 1 users see \
                 only their own code. Run as root, or `sudo sysctl kernel.perf_event_paranoid=1`.",
                self.paranoid
            ));
        }
        let hides_names = self.kptr_restrict >= 2 || (!self.is_root && self.kptr_restrict == 1);
        hides_names.then(|| {
            format!(
                "The kernel's functions have no names: `kernel.kptr_restrict` is {}; 0 shows their \
                 addresses to everyone, 1 to root, 2 to nobody. `sudo sysctl kernel.kptr_restrict=0`.",
                self.kptr_restrict
            )
        })
    }

    fn hint(self, said: &str) -> String {
        let said = said.to_lowercase();
        if !REFUSALS.iter().any(|word| said.contains(word)) {
            return String::new();
        }
        if self.is_root {
            return " (fix: in a container, add CAP_PERFMON and CAP_SYS_PTRACE)".to_owned();
        }
        format!(
            " (fix: run as root; or, for a daemon of this user, `sudo sysctl \
             kernel.perf_event_paranoid=1 kernel.kptr_restrict=0 kernel.yama.ptrace_scope=0`; they \
             are {}, {} and {})",
            self.paranoid, self.kptr_restrict, self.ptrace_scope
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(is_root: bool, paranoid: i32, kptr_restrict: i32) -> Settings {
        Settings {
            is_root,
            paranoid,
            kptr_restrict,
            ptrace_scope: 0,
        }
    }

    #[test]
    fn each_setting_that_hides_the_kernel_is_explained() {
        assert_eq!(settings(false, 1, 0).note(), None);
        assert_eq!(settings(true, 4, 1).note(), None);
        let note = settings(false, 2, 0).note().unwrap();
        assert!(note.contains("perf_event_paranoid` is 2"), "{note}");
        for (is_root, kptr_restrict) in [(false, 1), (false, 2), (true, 2)] {
            let note = settings(is_root, 0, kptr_restrict).note().unwrap();
            assert!(note.contains("kptr_restrict"), "{note}");
        }
    }

    #[test]
    fn a_refusal_comes_with_its_fix_and_other_failures_without() {
        let said = "strace: attach: ptrace(PTRACE_SEIZE, 12): Operation not permitted";
        assert!(settings(false, 1, 0).hint(said).contains("run as root"));
        assert!(settings(true, 1, 0).hint(said).contains("CAP_PERFMON"));
        assert_eq!(settings(false, 1, 0).hint("No such file"), "");
    }
}
