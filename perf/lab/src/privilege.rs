//! How this process may have namespaces: as root, or through a user namespace.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use crate::{
    error::LabError,
    holder::{self, Step},
};

/// Capabilities without which namespaces and links need a user namespace (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// How this process may have namespaces.
pub(crate) enum Privilege {
    /// With the capabilities of root.
    Root,
    /// Inside this user namespace, in which this user is root.
    UserNamespace(OwnedFd),
}

impl Privilege {
    /// Looks for the most direct way; makes the user namespace if one is needed.
    pub(crate) fn find() -> Result<Self, LabError> {
        may_open_tun()?;
        if has_capabilities() {
            return Ok(Self::Root);
        }
        let refused = |step: Step, source: io::Error| LabError::UserNamespace {
            step: step.what(),
            fix: user_namespace_fix(),
            source,
        };
        let (child, fd) = holder::user_namespace().map_err(|(s, e)| refused(s, e))?;
        map_to_root(child.pid().as_raw()).map_err(|e| refused(Step::MapIds, e))?;
        child.probe().map_err(|(s, e)| refused(s, e))?;
        Ok(Self::UserNamespace(fd))
    }

    /// The user namespace to enter before any other, if there is one.
    pub(crate) fn user_namespace(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Root => None,
            Self::UserNamespace(fd) => Some(fd.as_fd()),
        }
    }
}

fn may_open_tun() -> Result<(), LabError> {
    match OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        Ok(_) => Ok(()),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            Err(LabError::TunForbidden { source })
        }
        Err(source) => Err(LabError::TunMissing { source }),
    }
}

/// Whether this thread has what it takes without a user namespace: a container's root may not.
fn has_capabilities() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    [CAP_NET_ADMIN, CAP_SYS_ADMIN]
        .iter()
        .all(|capability| effective & (1 << capability) != 0)
}

/// Makes this user root inside the user namespace of `pid` (user_namespaces(7)).
fn map_to_root(pid: libc::pid_t) -> io::Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    write(pid, "uid_map", &format!("0 {uid} 1"))?;
    // Without it the kernel refuses a group map to users that are not root.
    write(pid, "setgroups", "deny")?;
    write(pid, "gid_map", &format!("0 {gid} 1"))
}

fn write(pid: libc::pid_t, name: &str, text: &str) -> io::Result<()> {
    use io::Write;
    let mut file = File::options()
        .write(true)
        .open(format!("/proc/{pid}/{name}"))?;
    file.write_all(text.as_bytes())
}

/// The settings that stand in the way, as commands.
fn user_namespace_fix() -> String {
    /// A setting, the value that forbids, and the command that allows.
    const SETTINGS: [(&str, &str, &str); 3] = [
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "`sudo sysctl -w user.max_user_namespaces=15000`",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "`sudo sysctl -w kernel.unprivileged_userns_clone=1`",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04)",
        ),
    ];
    let in_the_way: Vec<_> = SETTINGS
        .iter()
        .filter(|(path, forbids, _)| fs::read_to_string(path).is_ok_and(|v| v.trim() == *forbids))
        .map(|(_, _, fix)| *fix)
        .collect();
    if in_the_way.is_empty() {
        "run as root; in a container, allow user namespaces in its seccomp profile".to_owned()
    } else {
        format!("{}, or run as root", in_the_way.join(" and "))
    }
}
