//! Ground floor of processes: what each process of Convoy's needs, whatever it is for.
//!
//! It sets up the log, ends the process after a panic, starts it again in the background, binds Unix sockets and
//! removes their files, passes messages and descriptors between processes, closes those that the caller left open, and
//! enters namespaces without root.
//!
//! Every crate that runs as a process of its own may call it, and the lab. It knows no tunnel, no network and no
//! configuration, parses no command line (the feature `clap` only lets others do so), and stands on no other crate of
//! the workspace.

pub mod background;
pub mod descriptors;
mod fix;
pub mod logging;
pub mod message;
pub mod own_files;
pub mod panics;
pub mod paragraph;
mod print;
mod printable;
mod process;
pub mod socket;
pub mod terminal;
pub mod trust;

pub use print::{print, print_to};
pub use printable::printable;
pub(crate) use process::close_all_but;
pub use process::{
    PROGRAM, bound_freed_memory, close_inherited, forbid_core_dumps, inherited_fd,
    name_like_the_program, return_freed_memory, search_absolute_directories,
};

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
