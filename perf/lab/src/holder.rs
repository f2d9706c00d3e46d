//! The process that keeps a namespace alive: a shell that waits for the program to end.
//!
//! ```text
//!  program ── pipe ──▶ sh, in the new namespaces: wait for end-of-file, kill everyone inside, exit
//! ```
//!
//! End-of-file comes when the program closes the pipe or dies, however it dies. The shell finds
//! processes by namespace, not by parentage, since daemons put themselves into the background.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Pid, chdir, getegid, geteuid, setsid};

/// Looks several times, for those that are being forked meanwhile or take time to die.
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

/// A shell in a new network and mount namespace; dropping it kills everyone inside.
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts the shell, within the user namespace `user` if there is one. `name` is for `ps`.
    pub(crate) fn start(name: String, user: Option<Arc<OwnedFd>>) -> io::Result<Self> {
        let run = CString::new(run_directory().into_os_string().into_vec())?;
        let mut command = waiting("sh");
        command.arg0(name).args(["-c", HOLD]);
        // SAFETY: `unshare_network` makes system calls only, as a forked child must.
        unsafe { command.pre_exec(move || unshare_network(user.as_deref(), &run)) };
        command.spawn().map(Self)
    }

    pub(crate) fn pid(&self) -> Pid {
        process_id(&self.0)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Closes the pipe first. An error means that it is gone.
        let _ = self.0.wait();
    }
}

/// Makes a user namespace in which this user is root and may make namespaces.
pub(crate) fn user_namespace() -> io::Result<OwnedFd> {
    let maps = [
        ("/proc/self/uid_map", format!("0 {} 1", geteuid())),
        // Without it the kernel refuses a group map to users that are not root.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/gid_map", format!("0 {} 1", getegid())),
    ];
    let mut command = waiting("cat");
    let enter = move || {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        maps.iter()
            .try_for_each(|(file, text)| fs::write(file, text))?;
        // AppArmor gives out user namespaces in which nothing is allowed.
        Ok(unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?)
    };
    // SAFETY: `enter` makes system calls only (short paths do not allocate), as a forked child must.
    unsafe { command.pre_exec(enter) };
    let mut child = command.spawn()?;
    let user = File::open(format!("/proc/{}/ns/user", child.id()));
    child.wait()?;
    user.map(OwnedFd::from)
}

pub(crate) fn process_id(child: &Child) -> Pid {
    // Process numbers are below 2²² (PID_MAX_LIMIT).
    Pid::from_raw(child.id() as libc::pid_t)
}

/// A command that ends when its standard input does, and has no other descriptor of this process.
fn waiting(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Moves this process into new namespaces. Called between fork and exec.
fn unshare_network(user: Option<&OwnedFd>, run: &CStr) -> io::Result<()> {
    // Ctrl-C is for the program; the shell follows it.
    setsid()?;
    if let Some(user) = user {
        setns(user, CloneFlags::CLONE_NEWUSER)?;
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    // A new namespace has the host's congestion control. BBR, which paces itself, leaves CPUs idle
    // that a tunnel would use. Where the host keeps cubic from its users, nothing changes;
    // `measure::Host` says which it is.
    let _ = fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, private, none)?;
    let (tmpfs, options) = (Some("tmpfs"), Some("mode=0755,size=16m"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(tmpfs, run, tmpfs, flags, options)?;
    // Otherwise the shell would pin the program's working directory.
    Ok(chdir("/")?)
}

/// Where `/var/run` really is: mostly `/run`.
pub(crate) fn run_directory() -> PathBuf {
    fs::canonicalize("/var/run").unwrap_or_else(|_| "/run".into())
}
