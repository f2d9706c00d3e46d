//! What the kernel lets this user see of a process.

use std::fs;

use nix::unistd::geteuid;

/// Above it, users do not see the kernel's side (Documentation/admin-guide/sysctl/kernel.rst).
const MOST_PARANOID: i32 = 1;

/// The settings that stand in the way.
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

/// What a profile lacks because of settings; none where it has everything.
pub(crate) fn notes() -> Vec<String> {
    Settings::read().notes()
}

/// What helps against a refusal that a tool `said`; empty where it tells of none.
pub(crate) fn hint(said: &str) -> String {
    Settings::read().hint(said)
}

impl Settings {
    fn read() -> Self {
        let number = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
            text.ok().and_then(|text| text.trim().parse().ok())
        };
        Self {
            is_root: geteuid().is_root(),
            paranoid: number("perf_event_paranoid").unwrap_or(0),
            kptr_restrict: number("kptr_restrict").unwrap_or(0),
            ptrace_scope: number("yama/ptrace_scope").unwrap_or(0),
        }
    }

    fn notes(self) -> Vec<String> {
        let hides_kernel = !self.is_root && self.paranoid > MOST_PARANOID;
        let hides_names = self.kptr_restrict >= 2 || (!self.is_root && self.kptr_restrict == 1);
        let kernel = format!(
            "The kernel's side is missing: `kernel.perf_event_paranoid` is {}, and above 1 users see \
             only their own code. Run as root, or `sudo sysctl kernel.perf_event_paranoid=1`.",
            self.paranoid
        );
        let names = format!(
            "The kernel's functions have no names: `kernel.kptr_restrict` is {}; 0 shows their \
             addresses to everyone, 1 to root, 2 to nobody. `sudo sysctl kernel.kptr_restrict=0`.",
            self.kptr_restrict
        );
        let noted = [
            (hides_kernel, kernel),
            (hides_names && !hides_kernel, names),
        ];
        let noted = noted.into_iter().filter(|(is_so, _)| *is_so);
        noted.map(|(_, note)| note).collect()
    }

    fn hint(self, said: &str) -> String {
        let said = said.to_lowercase();
        let is_refusal = [
            "permitted",
            "permission",
            "access to perf",
            "eacces",
            "eperm",
        ]
        .iter()
        .any(|word| said.contains(word));
        if !is_refusal {
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

    const OPEN: Settings = Settings {
        is_root: false,
        paranoid: 1,
        kptr_restrict: 0,
        ptrace_scope: 0,
    };

    #[test]
    fn open_settings_have_no_notes() {
        assert!(OPEN.notes().is_empty());
        let root = Settings {
            is_root: true,
            paranoid: 4,
            kptr_restrict: 1,
            ..OPEN
        };
        assert!(root.notes().is_empty());
    }

    #[test]
    fn each_setting_that_hides_the_kernel_is_explained() {
        let paranoid = Settings {
            paranoid: 2,
            ..OPEN
        }
        .notes();
        assert!(
            paranoid[0].contains("perf_event_paranoid` is 2"),
            "{paranoid:?}"
        );
        for (kptr_restrict, is_root) in [(1, false), (2, false), (2, true)] {
            let notes = Settings {
                kptr_restrict,
                is_root,
                ..OPEN
            }
            .notes();
            assert!(notes[0].contains("kptr_restrict"), "{notes:?}");
        }
    }

    #[test]
    fn a_refusal_comes_with_its_fix_and_other_failures_without() {
        let said = "strace: attach: ptrace(PTRACE_SEIZE, 12): Operation not permitted";
        assert!(OPEN.hint(said).contains("run as root"));
        let root = Settings {
            is_root: true,
            ..OPEN
        };
        assert!(root.hint(said).contains("CAP_PERFMON"));
        assert_eq!(OPEN.hint("No such file"), "");
    }
}
