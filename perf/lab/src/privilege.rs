//! How this process may have namespaces: as root, or through a user namespace.

use std::{
    fs::{self, OpenOptions},
    os::fd::OwnedFd,
    sync::Arc,
};

use crate::{error::LabError, holder};

/// Capabilities without which namespaces and links need a user namespace (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// The user namespace to enter before any other; none with the capabilities of root.
pub(crate) fn user_namespace() -> Result<Option<Arc<OwnedFd>>, LabError> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    tun.map_err(LabError::Tun)?;
    if has_capabilities() {
        return Ok(None);
    }
    let user = holder::user_namespace()
        .map_err(|source| LabError::UserNamespace { fix: fix(), source })?;
    Ok(Some(Arc::new(user)))
}

/// Whether this thread has the capabilities: a container's root may lack them.
fn has_capabilities() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    [CAP_NET_ADMIN, CAP_SYS_ADMIN]
        .iter()
        .all(|capability| effective & (1 << capability) != 0)
}

/// The settings that stand in the way, as commands.
fn fix() -> String {
    /// A setting, the value that forbids, and the command that allows.
    const SETTINGS: [(&str, &str, &str); 3] = [
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "`sudo sysctl -w user.max_user_namespaces=15000`",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "`sudo sysctl -w kernel.unprivileged_userns_clone=1`",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04)",
        ),
    ];
    let in_the_way: Vec<_> = SETTINGS
        .iter()
        .filter(|(path, forbids, _)| fs::read_to_string(path).is_ok_and(|v| v.trim() == *forbids))
        .map(|(_, _, fix)| *fix)
        .collect();
    if in_the_way.is_empty() {
        "run as root; in a container, allow user namespaces in its seccomp profile".to_owned()
    } else {
        format!("{}, or run as root", in_the_way.join(" and "))
    }
}
