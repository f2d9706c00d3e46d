//! A user of its own for each daemon: one daemon cannot touch another, and none can touch what belongs to root.

use std::{
    fs::{DirBuilder, File},
    io,
    ops::RangeInclusive,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

use anyhow::{Context, bail};
use caps::{CapSet, Capability};
use convoy_process::trust::own_directory;
use nix::{
    sys::prctl,
    unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid},
};
use rustix::{io::Errno, process::getpriority_user};
use tracing::{debug, warn};

use crate::places::RUN;

/// Users and groups that systemd's table leaves unused, and that Debian gives nobody without asking
/// (<https://systemd.io/UIDS-GIDS/>).
const NUMBERS: [RangeInclusive<u32>; 2] = [61_111..=61_183, 60_706..=61_110];

/// The directory, below [`RUN`], with a directory for each number that is or was in use. A daemon locks its own.
const LOCKS: &str = "users";

/// Changes from root to a user that no other process has. Keeps the permitted capabilities, and no effective ones.
///
/// A daemon that may not change its user stays root, with a warning. It still loses its capabilities and its files.
///
/// # Errors
/// If no user is free.
pub(super) fn change() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let has = caps::read(None, CapSet::Effective)?;
    let needed = [Capability::CAP_SETUID, Capability::CAP_SETGID];
    if !needed.iter().all(|it| has.contains(it)) {
        warn!("the daemon stays root, as it lacks CAP_SETUID or CAP_SETGID (fix: grant them)");
        return Ok(());
    }
    let Own { number, lock } = take()?;
    prctl::set_keepcaps(true).context("cannot keep capabilities")?;
    let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
    let changed = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user));
    match changed {
        Ok(()) => {
            debug!(user = number, "Changed to a user of its own");
            // The number is taken for as long as the process lives.
            std::mem::forget(lock);
        }
        // For example a user namespace without this user.
        Err(errno) => warn!("the daemon stays root, as it cannot become user {number}: {errno}"),
    }
    Ok(())
}

/// A user number reserved for this process.
struct Own {
    number: u32,
    /// `None` where nothing can be locked.
    lock: Option<File>,
}

fn take() -> anyhow::Result<Own> {
    let directory = Path::new(RUN).join(LOCKS);
    let made = own_directory(Path::new(RUN)).and_then(|()| own_directory(&directory));
    if let Err(error) = &made {
        debug!(%error, "Cannot lock the number of a user");
    }
    for number in NUMBERS.into_iter().flatten() {
        let lock = match made {
            Ok(()) => match lock(&directory, number).context("cannot lock the number of a user")? {
                Some(lock) => Some(lock),
                None => continue,
            },
            Err(_) => None,
        };
        // The lock is not seen from other mount namespaces.
        if !is_in_use(number) {
            return Ok(Own { number, lock });
        }
    }
    bail!("all numbers from 60706 to 61183 belong to running processes (fix: end some of them)")
}

/// `None` if another process has the lock. A directory, unlike a file, needs no removal to leave nothing behind that
/// looks like a tunnel's.
fn lock(directory: &Path, number: u32) -> io::Result<Option<File>> {
    let path = directory.join(number.to_string());
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let lock = File::open(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a process of this user can be seen from here.
fn is_in_use(number: u32) -> bool {
    let user = rustix::process::Uid::from_raw(number);
    !matches!(getpriority_user(user), Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_number_that_is_locked_is_not_given_again() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path(), 61_111).unwrap();
        assert!(first.is_some());
        assert!(lock(directory.path(), 61_111).unwrap().is_none());
        assert!(lock(directory.path(), 61_112).unwrap().is_some());
        drop(first);
        // A child that another test forks holds the lock until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(20);
        while lock(directory.path(), 61_111).unwrap().is_none() {
            assert!(Instant::now() < deadline, "it stays locked");
            thread::yield_now();
        }
    }

    #[test]
    fn the_user_of_this_process_is_in_use() {
        assert!(is_in_use(nix::unistd::getuid().as_raw()));
    }
}
