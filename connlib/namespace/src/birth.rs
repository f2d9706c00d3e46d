//! The birth of the holder in its namespaces: between fork and exec.

use std::{io, os::unix::process::CommandExt, process::Command};

use convoy_process::unshare_as;
use nix::unistd::{getegid, geteuid, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, set_capabilities,
};

/// Capabilities that the holder needs: for links, addresses and routes; for mounts; and to find processes inside that
/// hide their memory (`PR_SET_DUMPABLE`), which are to end as well.
const CAPABILITIES: [CapabilitySet; 3] = [
    CapabilitySet::NET_ADMIN,
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
];

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

/// Makes [`CAPABILITIES`] last across exec, which takes those of a user other than root.
fn keep_capabilities() -> io::Result<()> {
    let all = CAPABILITIES.into_iter().collect();
    let sets = CapabilitySets {
        effective: all,
        permitted: all,
        inheritable: all,
    };
    set_capabilities(None, sets)?;
    for capability in CAPABILITIES {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}
