//! Killing everything inside the namespaces of this process.
//!
//! Found by namespace and not by parentage, since daemons put themselves into the background.
//! Runs in a forked child: async-signal-safe calls only, like [`holder`](crate::holder).

use std::{mem, ptr};

/// How often to look again for those that were being forked meanwhile, or take time to die.
const ROUNDS: usize = 5_000;

/// Kills until nobody else is left in this process's network or mount namespace.
pub(crate) fn kill_everything_inside() {
    let own = Namespaces::of(b"self");
    for _ in 0..ROUNDS {
        if !kill_once(&own) {
            return;
        }
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // SAFETY: `pause` outlives the call; the remaining time is not asked for.
        unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
    }
}

/// The identities of a process's namespaces; `None` for a process that is gone or out of bounds.
#[derive(PartialEq, Eq)]
struct Namespaces {
    network: Option<(libc::dev_t, libc::ino_t)>,
    mounts: Option<(libc::dev_t, libc::ino_t)>,
}

impl Namespaces {
    fn of(process: &[u8]) -> Self {
        Self {
            network: identity(process, b"/ns/net"),
            mounts: identity(process, b"/ns/mnt"),
        }
    }

    fn shares_with(&self, other: &Self) -> bool {
        let network = self.network.is_some() && self.network == other.network;
        let mounts = self.mounts.is_some() && self.mounts == other.mounts;
        network || mounts
    }
}

/// Kills everyone seen in one look at `/proc`; whether there was anyone.
fn kill_once(own: &Namespaces) -> bool {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: plain system calls on a constant path and on this process.
    let (directory, this) = unsafe { (libc::open(c"/proc".as_ptr(), flags), libc::getpid()) };
    if directory < 0 {
        return false;
    }
    let mut found = false;
    let mut entries = [0u64; 512];
    loop {
        let room = size_of_val(&entries);
        // SAFETY: the kernel writes at most `room` bytes into `entries`, which are plain bytes.
        let (length, bytes) = unsafe {
            let length = libc::syscall(libc::SYS_getdents64, directory, entries.as_mut_ptr(), room);
            let length = usize::try_from(length).unwrap_or(0);
            (
                length,
                std::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), length.min(room)),
            )
        };
        if length == 0 {
            break;
        }
        for name in names(bytes) {
            let Some(pid) = process_id(name).filter(|pid| *pid != this) else {
                continue;
            };
            if own.shares_with(&Namespaces::of(name)) {
                found = true;
                // SAFETY: a plain system call; `pid` is a process of this lab.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
    // SAFETY: `directory` was opened above and is not used again.
    unsafe { libc::close(directory) };
    found
}

/// The names in the records of getdents64(2): inode and offset (8 bytes each), length of the
/// record (2), type (1), name, NUL.
fn names(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    std::iter::from_fn(move || {
        let length = records.get(LENGTH_AT..LENGTH_AT + 2)?;
        let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
        let name = records.get(NAME_AT..length)?;
        records = records.get(length..)?;
        name.split(|byte| *byte == 0).next()
    })
}

fn process_id(name: &[u8]) -> Option<libc::pid_t> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

/// The identity of the namespace behind `/proc/<process><link>`.
fn identity(process: &[u8], link: &[u8]) -> Option<(libc::dev_t, libc::ino_t)> {
    // Longer than any process number's path, so that the last byte is always NUL.
    let mut path = [0u8; 40];
    let parts = [&b"/proc/"[..], process, link];
    let text = parts.into_iter().flatten();
    path.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    // SAFETY: `path` is NUL-terminated, and `stat` is written by the kernel before it is read.
    unsafe {
        let mut stat: libc::stat = mem::zeroed();
        let seen = libc::stat(path.as_ptr().cast(), &mut stat) == 0;
        seen.then_some((stat.st_dev, stat.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_directory_listing_are_read() {
        let mut records = Vec::new();
        for name in ["1\0\0\0\0", "self\0", "4194304\0\0"] {
            records.extend([0; 16]);
            records.extend((19 + name.len() as u16).to_ne_bytes());
            records.push(4);
            records.extend(name.as_bytes());
        }
        let pids: Vec<_> = names(&records).map(process_id).collect();
        assert_eq!(pids, [Some(1), None, Some(4_194_304)]);
    }

    #[test]
    fn a_process_shares_namespaces_with_itself_and_nobody_who_is_gone() {
        let own = Namespaces::of(b"self");
        let same = Namespaces::of(std::process::id().to_string().as_bytes());
        assert!(own.shares_with(&same));
        let gone = Namespaces {
            network: None,
            mounts: None,
        };
        assert!(!gone.shares_with(&Namespaces {
            network: None,
            mounts: None
        }));
        assert!(!own.shares_with(&gone));
    }
}
