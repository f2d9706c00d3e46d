//! How the holder comes into its namespaces: between fork and exec.

use std::{fs, io, os::unix::process::CommandExt, process::Command};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid, setsid},
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
};

use super::error::NamespaceError;

/// What the holder needs: links, addresses and routes; mounts.
const CAPABILITIES: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);

/// Has `command` run in new user, network and mount namespaces, with [`CAPABILITIES`] there.
pub(super) fn in_new_namespaces(command: &mut Command) -> Result<(), NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    let maps = [
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        // Without it the kernel denies other users than root a group map.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    let enter = move || {
        // Ctrl-C is for the owner; the holder ends with it.
        setsid()?;
        unshare(CloneFlags::CLONE_NEWUSER)?;
        maps.iter()
            .try_for_each(|(file, text)| fs::write(file, text))?;
        // AppArmor may grant a user namespace without any capabilities.
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
        keep_capabilities()
    };
    // SAFETY: `enter` makes system calls only (short paths do not allocate), as required of a forked child.
    unsafe { command.pre_exec(enter) };
    Ok(())
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
