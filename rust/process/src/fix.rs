//! Advice where the kernel refuses namespaces or TUN devices.

use std::{fs, io};

/// A setting, the value that forbids user namespaces, and what allows them.
const SETTINGS: [(&str, &str, &str); 3] = [
    (
        "user.max_user_namespaces",
        "0",
        "`sudo sysctl -w user.max_user_namespaces=15000`",
    ),
    // Debian's and Arch's kernels.
    (
        "kernel.unprivileged_userns_clone",
        "0",
        "`sudo sysctl -w kernel.unprivileged_userns_clone=1`",
    ),
    // Ubuntu 24.04.
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile that allows this program `userns`, or \
         `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
];

/// Returns what allows user namespaces on this system, after it has refused one with `refusal`.
#[must_use]
pub fn user_namespace_fix(refusal: &io::Error) -> String {
    let setting = |name: &str| {
        let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")));
        Some(value.ok()?.trim().to_owned())
    };
    fix(refusal, setting)
}

fn fix(refusal: &io::Error, setting: impl Fn(&str) -> Option<String>) -> String {
    let in_the_way = SETTINGS
        .iter()
        .filter(|(name, forbids, _)| setting(name).as_deref() == Some(*forbids));
    let fixes: Vec<_> = in_the_way.map(|(_, _, allows)| *allows).collect();
    match (fixes.is_empty(), refusal.raw_os_error()) {
        (false, _) => fixes.join(" and "),
        (true, Some(libc::ENOSPC)) => {
            "raise `sysctl user.max_user_namespaces user.max_net_namespaces user.max_mnt_namespaces`"
                .to_owned()
        }
        (true, _) => {
            "in a container, allow user namespaces in its seccomp profile".to_owned()
        }
    }
}

/// Returns what makes `/dev/net/tun` available, after opening it has failed with `refusal`.
#[must_use]
pub fn tun_fix(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::PermissionDenied => "`sudo chmod 0666 /dev/net/tun`, or run as root",
        _ => "`sudo modprobe tun`; in a container, pass --device /dev/net/tun",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_forbids_names_what_allows() {
        let refused = |errno| io::Error::from_raw_os_error(errno);
        for (forbidding, forbids, allows) in SETTINGS {
            let setting = |name: &str| {
                let value = if name == forbidding { forbids } else { "7" };
                Some(value.to_owned())
            };
            assert_eq!(fix(&refused(libc::EPERM), setting), allows);
        }
        let others = |errno| fix(&refused(errno), |_| None);
        assert!(others(libc::ENOSPC).contains("user.max_net_namespaces"));
        assert!(others(libc::EPERM).contains("seccomp"));
    }
}
