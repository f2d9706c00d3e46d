//! The privilege by which this process creates namespaces: root, or a user namespace.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use convoy_process::user_namespace_fix;
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
    let user = holder::user_namespace().map_err(|source| LabError::UserNamespace {
        fix: format!("{}, or run as root", user_namespace_fix(&source)),
        source,
    })?;
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
