//! Whether `convoy profile` can work.

use std::{env, path::PathBuf};

use convoy_host::search_path;

use super::{finding::Finding, sysctl};

/// Above these, users see only their own code, or functions of the kernel have no names
/// (Documentation/admin-guide/sysctl/kernel.rst).
const SETTINGS: [(&str, i32); 2] = [
    ("kernel.perf_event_paranoid", 1),
    ("kernel.kptr_restrict", 0),
];

const TOOLS: [&str; 2] = ["perf", "strace"];

/// Needs of `convoy profile`.
#[derive(Clone, Debug)]
pub(super) struct Profiling {
    pub(super) is_root: bool,
    /// Values in the order of [`SETTINGS`].
    pub(super) settings: [Option<i32>; 2],
    pub(super) missing: Vec<&'static str>,
}

impl Profiling {
    pub(super) fn gather(is_root: bool) -> Self {
        let missing = TOOLS.into_iter().filter(|tool| installed(tool).is_none());
        Self {
            is_root,
            settings: SETTINGS.map(|(name, _)| sysctl::number(name)),
            missing: missing.collect(),
        }
    }
}

/// The file of a program in `PATH` or in root's directories.
pub(super) fn installed(program: &str) -> Option<PathBuf> {
    let path = search_path();
    let mut places = env::split_paths(&path).map(|place| place.join(program));
    places.find(|file| file.is_file())
}

/// Judges tools and settings.
pub(super) fn judge(profiling: &Profiling) -> Vec<Finding> {
    vec![tools(&profiling.missing), settings(profiling)]
}

fn tools(missing: &[&str]) -> Finding {
    const ID: &str = "profile-tools";
    if missing.is_empty() {
        return Finding::ok(ID, "perf and strace are installed, for `convoy profile`.");
    }
    let what = format!(
        "`convoy profile` needs {}, not installed.",
        missing.join(" and ")
    );
    let fix = "`apt-get install linux-perf strace`, or your distribution's packages of them";
    Finding::note(ID, what, fix)
}

fn settings(profiling: &Profiling) -> Finding {
    const ID: &str = "profile-settings";
    if profiling.is_root {
        let [_, kptr_restrict] = profiling.settings;
        // 1 shows names to root.
        return match kptr_restrict {
            Some(2..) => Finding::note(
                ID,
                "Profiles cannot name the kernel's functions: kernel.kptr_restrict hides them from everybody.",
                "`sysctl -w kernel.kptr_restrict=1`",
            ),
            _ => Finding::ok(ID, "The kernel's settings let root profile."),
        };
    }
    let strict = SETTINGS.iter().zip(profiling.settings);
    let strict = strict.filter(|((_, most), value)| value.is_some_and(|value| value > *most));
    let changes: Vec<_> = strict
        .map(|((name, most), _)| format!("{name}={most}"))
        .collect();
    if changes.is_empty() {
        return Finding::ok(ID, "The kernel's settings let users profile.");
    }
    Finding::note(
        ID,
        "The kernel's settings hide its part of a profile from users.",
        format!("Profile as root, or `sysctl -w {}`.", changes.join(" ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn severities(is_root: bool, settings: [i32; 2], missing: &[&'static str]) -> Vec<Severity> {
        let findings = judge(&Profiling {
            is_root,
            settings: settings.map(Some),
            missing: missing.to_vec(),
        });
        findings
            .into_iter()
            .map(|finding| finding.severity)
            .collect()
    }

    #[test]
    fn root_may_profile_unless_the_kernel_hides_its_addresses_from_everybody() {
        use Severity::{Note, Ok};
        assert_eq!(severities(true, [4, 1], &[]), [Ok, Ok]);
        assert_eq!(severities(true, [4, 2], &["perf"]), [Note, Note]);
        assert_eq!(severities(false, [1, 0], &[]), [Ok, Ok]);
        assert_eq!(severities(false, [2, 0], &[]), [Ok, Note]);
        assert_eq!(severities(false, [1, 1], &[]), [Ok, Note]);
    }

    #[test]
    fn only_the_settings_that_are_in_the_way_are_changed() {
        let settings = [Some(2), Some(0)];
        let finding = settings_of(settings);
        assert!(finding.contains("perf_event_paranoid=1"), "{finding}");
        assert!(!finding.contains("kptr_restrict"), "{finding}");
    }

    fn settings_of(values: [Option<i32>; 2]) -> String {
        let finding = settings(&Profiling {
            is_root: false,
            settings: values,
            missing: Vec::new(),
        });
        finding.fix.unwrap()
    }

    #[test]
    fn a_program_is_found_in_the_path() {
        assert!(installed("sh").is_some());
        assert!(installed("no-such-program").is_none());
    }
}
