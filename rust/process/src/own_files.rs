//! Removes a daemon's socket files at its end: the daemon itself can no longer reach them by then.
//!
//! ```text
//!  daemon (own user, no files) ── one byte ──▶ keeper (removes these files, and nothing else)
//!                              ◀── end of file: they are gone
//! ```
//! The keeper is a child of the daemon and ends with it, in whichever way that ends. As ever, a daemon that is killed
//! leaves its files behind.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use nix::{
    sys::{
        prctl,
        signal::{SigSet, SigmaskHow, sigprocmask},
    },
    unistd::{ForkResult, fork},
};

use crate::{close_all_but, socket::SocketFile};

/// Time limit for removing, so that a keeper that was stopped does not keep the daemon.
const REMOVAL_TIME: Duration = Duration::from_secs(1);

/// The socket files that this process removes at its end.
#[derive(Clone, Debug, Default)]
pub struct OwnFiles {
    files: Vec<SocketFile>,
    keeper: Option<Arc<UnixStream>>,
}

impl OwnFiles {
    /// Adds files to remove.
    pub fn add(&mut self, files: impl IntoIterator<Item = SocketFile>) {
        self.files.extend(files);
    }

    /// Hands the files over to a keeper, which can remove them once this process no longer can. Call it while the
    /// process has one thread.
    ///
    /// `confine` leaves the keeper nothing but to remove files in these directories, which belong to other users
    /// unless `are_ours`. If it fails, the files stay.
    pub fn hand_over(
        &mut self,
        confine: fn(directories: &[&OwnedFd], are_ours: bool) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let (ours, theirs) = UnixStream::pair().context("cannot make a socket")?;
        ours.set_read_timeout(Some(REMOVAL_TIME))?;
        ours.set_write_timeout(Some(REMOVAL_TIME))?;
        // SAFETY: the process has one thread, so that its copy may go on as any other process.
        match unsafe { fork() }.context("cannot start the process that removes the sockets")? {
            ForkResult::Child => {
                keep(theirs, &self.files, confine);
                // SAFETY: it does not return. All that the copy would clean up is the daemon's.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { .. } => self.keeper = Some(Arc::new(ours)),
        }
        Ok(())
    }

    /// Removes the files, unless another daemon has replaced them.
    pub fn remove(&self) {
        match self.keeper.as_deref() {
            None => self.files.iter().for_each(SocketFile::remove),
            Some(mut keeper) => {
                // Nothing can be done about a keeper that was killed.
                let asked = keeper.write_all(&[1]);
                let _ = asked.and_then(|()| keeper.read(&mut [0]));
            }
        }
    }
}

/// The keeper's whole life.
fn keep(
    mut daemon: UnixStream,
    files: &[SocketFile],
    confine: fn(&[&OwnedFd], bool) -> anyhow::Result<()>,
) {
    // Those that end the daemon end this process through it.
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None);
    let _ = prctl::set_name(c"socket-keeper");
    let directories: Vec<_> = files.iter().map(SocketFile::directory).collect();
    let needed = files.iter().flat_map(SocketFile::descriptors);
    close_all_but(needed.chain([daemon.as_raw_fd()]));
    let are_ours = files.iter().all(SocketFile::is_ours);
    if confine(&directories, are_ours).is_ok() && is_asked(&mut daemon) {
        files.iter().for_each(SocketFile::remove);
    }
}

/// Waits for the daemon's request, or for its end.
fn is_asked(daemon: &mut UnixStream) -> bool {
    loop {
        match daemon.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome.is_ok_and(|length| length > 0),
        }
    }
}
