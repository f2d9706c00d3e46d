//! The process that keeps a namespace alive: a shell that waits for the program to end.
//!
//! ```text
//!  program ── pipe ──▶ sh, in the new namespaces: wait for end-of-file, kill everyone inside, exit
//! ```
//!
//! The pipe reports end-of-file when the program closes it or dies for any reason. The shell finds
//! processes by namespace, not by parentage, because daemons detach from their parent.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use convoy_process::unshare_as;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid, chdir, setsid};

use crate::child::close_internet_sockets;

/// Searches several times, for processes that are just being forked or are slow to die.
const HOLD: &str = r#"
    trap '' HUP INT QUIT TERM
    while read -r _; do :; done
    looks=0
    while [ $((looks += 1)) -le 500 ]; do
        found=
        for process in /proc/[0-9]*; do
            [ "$process" = /proc/$$ ] && continue
            if [ "$process/ns/net" -ef /proc/$$/ns/net ] || [ "$process/ns/mnt" -ef /proc/$$/ns/mnt ]; then
                kill -9 "${process#/proc/}"
                found=yes
            fi
        done
        [ "$found" ] || exit
        sleep 0.01
    done
"#;

/// Starts the shell in a new network and mount namespace, inside the user namespace `user` if there is one. `name`
/// appears in `ps`. Once its standard input is closed, it kills everything inside.
pub(crate) fn start(name: String, user: Option<Arc<OwnedFd>>) -> io::Result<Child> {
    let run = CString::new(run_directory().into_os_string().into_vec())?;
    let mut command = waiting("sh");
    command.arg0(name).args(["-c", HOLD]);
    // SAFETY: `unshare_network` makes system calls only, as required of a forked child.
    unsafe { command.pre_exec(move || unshare_network(user.as_deref(), &run)) };
    command.spawn()
}

/// Creates a user namespace in which this user is root and may create namespaces.
pub(crate) fn user_namespace() -> io::Result<OwnedFd> {
    let mut command = waiting("cat");
    let enter = unshare_as(Uid::from_raw(0), Gid::from_raw(0));
    // SAFETY: `enter` makes system calls only, as required of a forked child.
    unsafe { command.pre_exec(enter) };
    let mut child = command.spawn()?;
    let user = File::open(format!("/proc/{}/ns/user", child.id()));
    child.wait()?;
    user.map(OwnedFd::from)
}

/// A command that ends at end-of-file on its standard input, and inherits no other descriptor.
fn waiting(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Moves this process into new namespaces. Called between fork and exec.
fn unshare_network(user: Option<&OwnedFd>, run: &CStr) -> io::Result<()> {
    close_internet_sockets();
    // Ctrl-C is for the program; the shell ends with it.
    setsid()?;
    if let Some(user) = user {
        setns(user, CloneFlags::CLONE_NEWUSER)?;
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    // A new namespace inherits the host's congestion control. BBR paces itself and leaves CPUs idle that a
    // tunnel would use. If the host denies cubic to its users, nothing changes; `measure::Host` reports which
    // one is in use.
    let _ = fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, private, none)?;
    let (tmpfs, options) = (Some("tmpfs"), Some("mode=0755,size=16m"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(tmpfs, run, tmpfs, flags, options)?;
    // Otherwise the shell would keep the program's working directory busy.
    Ok(chdir("/")?)
}

/// The target of `/var/run`, usually `/run`.
pub(crate) fn run_directory() -> PathBuf {
    fs::canonicalize("/var/run").unwrap_or_else(|_| "/run".into())
}
