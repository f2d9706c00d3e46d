//! Gives up the privileges that the daemon no longer needs once its device and its sockets are open.
//!
//! It keeps three capabilities and the system calls that a running daemon makes; it cannot execute programs.
//! `perf` may still attach to it.

mod system_calls;

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use nix::{sys::prctl, unistd::geteuid};
use tracing::{debug, warn};

use crate::uapi::socket::SocketFile;

/// The capabilities that a running daemon needs.
pub(crate) const KEPT: [Capability; 3] = [
    // Marks of sockets, the device's offloads and MTU, questions about other network namespaces.
    Capability::CAP_NET_ADMIN,
    // Ports below 1024.
    Capability::CAP_NET_BIND_SERVICE,
    // Events of the network namespace that the interface is moved to.
    Capability::CAP_NET_BROADCAST,
];

/// Confines this process for good. Call it while it has one thread: the kernel counts capabilities and
/// filters by thread.
///
/// If the kernel lacks seccomp, logs a warning and continues.
///
/// # Errors
/// If the kernel refuses to take a capability away.
pub(crate) fn confine(sockets: &[SocketFile]) -> anyhow::Result<()> {
    drop_capabilities(sockets).context("cannot drop capabilities")?;
    prctl::set_no_new_privs().context("cannot set no_new_privs")?;
    if let Err(error) = system_calls::restrict() {
        warn!("cannot restrict system calls, going on without: {error:#}");
    }
    Ok(())
}

fn drop_capabilities(sockets: &[SocketFile]) -> anyhow::Result<()> {
    let has = caps::read(None, CapSet::Permitted)?;
    let mut kept: CapsHashSet = KEPT.into_iter().collect();
    if !sockets.iter().all(SocketFile::is_ours) {
        // To remove the files at the end.
        kept.insert(Capability::CAP_DAC_OVERRIDE);
    }
    let kept: CapsHashSet = has.intersection(&kept).copied().collect();
    if has.contains(&Capability::CAP_SETPCAP) {
        let bounding = caps::read(None, CapSet::Bounding)?;
        for capability in bounding.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    // First the effective ones: they must be among the permitted.
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    let user = geteuid().as_raw();
    debug!(user, ?kept, "Dropped the other capabilities");
    Ok(())
}
