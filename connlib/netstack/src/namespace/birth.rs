//! How the holder comes into its namespaces: between fork and exec.

use std::{fs, io, os::unix::process::CommandExt, process::Command};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{Gid, Uid, getegid, geteuid, setsid},
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
};

/// Capabilities that the holder needs: for links, addresses and routes; mounts.
const CAPABILITIES: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);

/// Makes `command` run in new user, network and mount namespaces, with [`CAPABILITIES`] there.
pub(super) fn in_new_namespaces(command: &mut Command) {
    let unshare_all = unshare_as(geteuid(), getegid());
    let enter = move || {
        // Ctrl-C is for the owner; the holder ends with it.
        setsid()?;
        unshare_all()?;
        keep_capabilities()
    };
    // SAFETY: `enter` makes system calls only (see `unshare_as`), as required of a forked child.
    unsafe { command.pre_exec(enter) };
}

/// Moves a process with one thread into new user, network and mount namespaces, in which this user has the given uid
/// and gid, and all capabilities until it executes a program.
///
/// The function returned makes system calls only, so that it may be called between fork and exec.
///
/// # Errors
/// The kernel's refusal; [`user_namespace_fix`](super::user_namespace_fix) tells what allows it.
pub fn unshare_as(uid: Uid, gid: Gid) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
    let maps = [
        ("/proc/self/uid_map", format!("{uid} {} 1", geteuid())),
        // Without it the kernel denies other users than root a group map.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/gid_map", format!("{gid} {} 1", getegid())),
    ];
    move || {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        // Short paths do not allocate.
        maps.iter()
            .try_for_each(|(file, text)| fs::write(file, text))?;
        // AppArmor may grant a user namespace without any capabilities.
        Ok(unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?)
    }
}

/// Makes [`CAPABILITIES`] last across exec, which takes those of a user other than root.
fn keep_capabilities() -> io::Result<()> {
    let sets = CapabilitySets {
        effective: CAPABILITIES,
        permitted: CAPABILITIES,
        inheritable: CAPABILITIES,
    };
    set_capabilities(None, sets)?;
    for capability in [CapabilitySet::NET_ADMIN, CapabilitySet::SYS_ADMIN] {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}
