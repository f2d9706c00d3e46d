//! Ground floor of processes: enters namespaces without root, and says what allows it where the kernel refuses.
//!
//! Networks without root and the lab call it. It knows no network, no tunnel and no file of Convoy's, starts no process
//! and keeps no state.

mod fix;

pub use fix::{tun_fix, user_namespace_fix};

use std::{fs, io};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{Gid, Uid, getegid, geteuid},
};

/// Moves a process with one thread into new user, network and mount namespaces, in which this user has the given uid
/// and gid, and all capabilities until it executes a program.
///
/// The function returned makes system calls only, so that it may be called between fork and exec.
///
/// # Errors
/// The kernel's refusal; [`user_namespace_fix`] tells what allows it.
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
