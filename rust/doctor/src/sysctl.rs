//! The kernel's settings.

use std::{fs, path::PathBuf, str::FromStr};

/// The value of a setting, such as `net.core.rmem_max`; `None` if the kernel does not show it here.
pub(super) fn sysctl(name: &str) -> Option<String> {
    let path: PathBuf = name.split('.').collect();
    of_path(&path.to_string_lossy())
}

/// The same for a number.
pub(super) fn number<T: FromStr>(name: &str) -> Option<T> {
    sysctl(name)?.parse().ok()
}

/// The same by its path below `/proc/sys`, as names of interfaces may contain dots.
pub(super) fn of_path(path: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}"));
    text.ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_by_its_name() {
        assert!(sysctl("kernel.osrelease").is_some_and(|text| text.contains('.')));
        assert!(number::<u32>("kernel.pid_max").is_some_and(|number| number > 0));
        assert_eq!(sysctl("kernel.no_such_setting"), None);
    }
}
