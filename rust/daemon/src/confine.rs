//! Gives up the privileges that the daemon no longer needs once its device and its sockets are open.
//!
//! It keeps three capabilities, or two under a supervisor, and the system calls that a running daemon makes. It opens
//! no file and executes no program, and no other process has its user. Other processes cannot attach to it, unless
//! `convoy profile` asks.

mod files;
mod system_calls;
mod user;

use std::os::fd::OwnedFd;

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use nix::{sys::prctl, unistd::geteuid};
use tracing::{debug, warn};

/// The capabilities that a tunnel needs while its supervisor has the others.
const SUPERVISED: [Capability; 2] = [
    // Ports below 1024.
    Capability::CAP_NET_BIND_SERVICE,
    // Events of the network namespace that the interface is moved to.
    Capability::CAP_NET_BROADCAST,
];

/// The capabilities that a daemon without a supervisor needs.
const ALONE: [Capability; 3] = [
    // Marks and buffers of sockets, questions about other network namespaces.
    Capability::CAP_NET_ADMIN,
    SUPERVISED[0],
    SUPERVISED[1],
];

/// Confines a daemon for good. Call it while it has one thread: the kernel counts users, capabilities, Landlock's
/// rules and filters by thread.
///
/// If the kernel lacks seccomp or Landlock, logs that and continues.
///
/// # Errors
/// If no user is free, or the kernel refuses to take a capability away.
pub(crate) fn confine() -> anyhow::Result<()> {
    confine_to(&ALONE)
}

/// As [`confine`], for a tunnel whose supervisor sets marks for it.
pub(crate) fn confine_supervised() -> anyhow::Result<()> {
    confine_to(&SUPERVISED)
}

fn confine_to(kept: &[Capability]) -> anyhow::Result<()> {
    user::change().context("cannot change to a user of its own")?;
    drop_capabilities(kept).context("cannot drop capabilities")?;
    prctl::set_dumpable(false).context("cannot hide this process's memory")?;
    prctl::set_no_new_privs().context("cannot set no_new_privs")?;
    debug!(
        user = geteuid().as_raw(),
        ?kept,
        "Dropped the other capabilities"
    );
    if let Err(error) = files::deny() {
        debug!("Cannot deny files by Landlock, continuing without: {error:#}");
    }
    if let Err(error) = system_calls::restrict() {
        warn!("cannot restrict system calls, continuing without: {error:#}");
    }
    Ok(())
}

/// Confines a process that only removes files in these directories, which belong to other users unless `are_ours`. Its
/// one thread must not need anything else from now on.
pub(crate) fn confine_to_removing(directories: &[&OwnedFd], are_ours: bool) -> anyhow::Result<()> {
    let needed = match are_ours {
        true => &[][..],
        false => &[Capability::CAP_DAC_OVERRIDE],
    };
    drop_capabilities(needed)?;
    prctl::set_dumpable(false)?;
    prctl::set_no_new_privs()?;
    // Either may be missing in the kernel.
    let _ = files::deny_all_but_removing_in(directories);
    let _ = system_calls::restrict_to_removing();
    Ok(())
}

fn drop_capabilities(wanted: &[Capability]) -> anyhow::Result<()> {
    let has = caps::read(None, CapSet::Permitted)?;
    let wanted: CapsHashSet = wanted.iter().copied().collect();
    let kept: CapsHashSet = has.intersection(&wanted).copied().collect();
    // A change of the user has cleared them.
    caps::set(None, CapSet::Effective, &has)?;
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
    Ok(())
}
