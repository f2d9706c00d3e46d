//! Errors of a lab, with the fix in the message.

use std::io;

/// An error of a lab or of something in it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// `/dev/net/tun` cannot be opened.
    #[error("/dev/net/tun cannot be opened: {0} (fix: {fix})", fix = tun_fix(.0))]
    Tun(#[source] io::Error),
    /// Not root, and the system refuses this user a user namespace.
    #[error("not root, and the kernel refuses a user namespace: {source} (fix: {fix})")]
    UserNamespace {
        /// The settings that stand in the way.
        fix: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A namespace, or a socket in it, could not be set up.
    #[error("namespace {label}: {doing}: {source}{}", hint(.source))]
    Namespace {
        /// The label of the namespace.
        label: String,
        /// The step that failed.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// [`Namespace::run`](crate::Namespace::run) without root.
    #[error(
        "code of this process can only run inside a namespace as root: a process with several \
         threads may not enter a user namespace (fix: run as root, or start a program with \
         Namespace::command)"
    )]
    RunNeedsRoot,
    /// A standard program such as `ip` is missing, or refused its task.
    #[error("namespace {label}: {command}: {problem}")]
    Tool {
        /// The label of the namespace.
        label: String,
        /// The program and its arguments.
        command: String,
        /// The reason, in the program's words where it ran.
        problem: String,
    },
    /// A WireGuard daemon did not start, or did not do as asked.
    #[error("{program}: {problem}")]
    Daemon {
        /// The program.
        program: String,
        /// The problem.
        problem: String,
    },
}

fn tun_fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "`sudo chmod 0666 /dev/net/tun`, or run as root",
        _ => "`sudo modprobe tun`; in a container, pass --device /dev/net/tun",
    }
}

/// The fix for a shortage, which the kernel's error text does not name.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => " (fix: free some memory; the kernel has none for a namespace)",
        Some(libc::ENOSPC) => {
            " (fix: raise `sysctl user.max_net_namespaces user.max_mnt_namespaces`)"
        }
        Some(libc::EPERM) => {
            " (fix: run as root; in a container, add CAP_SYS_ADMIN and CAP_NET_ADMIN)"
        }
        _ => "",
    }
}
