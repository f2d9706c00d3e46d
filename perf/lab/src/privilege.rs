//! How this process can create namespaces: as root, or in a user namespace.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use procfs::process::Process;

use crate::{error::LabError, holder};

/// Capabilities without which namespaces and links need a user namespace (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// The user namespace to enter before any other; `None` with root's capabilities.
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

/// Whether this process has the capabilities: root in a container may lack them.
fn has_capabilities() -> bool {
    let status = Process::myself().and_then(|process| process.status());
    let effective = status.map_or(0, |status| status.capeff);
    [CAP_NET_ADMIN, CAP_SYS_ADMIN]
        .iter()
        .all(|capability| effective & (1 << capability) != 0)
}

/// Commands that change the responsible settings.
fn fix() -> String {
    /// A setting, the value that forbids user namespaces, and the value that allows them.
    const SETTINGS: [(&str, &str, &str); 3] = [
        ("user.max_user_namespaces", "0", "15000"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        // Ubuntu 24.04.
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ];
    let in_the_way = SETTINGS.iter().filter(|(name, forbids, _)| {
        let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")));
        value.is_ok_and(|value| value.trim() == *forbids)
    });
    let fixes: Vec<_> = in_the_way
        .map(|(name, _, allows)| format!("`sudo sysctl -w {name}={allows}`"))
        .collect();
    match fixes.is_empty() {
        true => {
            "run as root; in a container, allow user namespaces in its seccomp profile".to_owned()
        }
        false => format!("{}, or run as root", fixes.join(" and ")),
    }
}
