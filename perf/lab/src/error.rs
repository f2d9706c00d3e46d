//! Why a lab cannot be had, with the fix in the message.

use std::io;

use crate::address::ParseCidrError;

/// Why a lab, or something in it, cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// `/dev/net/tun` does not exist, or no driver is behind it.
    #[error(
        "there is no TUN device: {source} (fix: `sudo modprobe tun`; in a container, pass \
         --device /dev/net/tun)"
    )]
    TunMissing {
        /// What opening the node returned.
        source: io::Error,
    },
    /// `/dev/net/tun` may not be opened by this user.
    #[error(
        "/dev/net/tun may not be opened: {source} (fix: `sudo chmod 0666 /dev/net/tun`, or run as \
         root)"
    )]
    TunForbidden {
        /// What opening the node returned.
        source: io::Error,
    },
    /// Not root, and the system does not let this user have a user namespace.
    #[error("not root, and no user namespace can be had: {step}: {source} (fix: {fix})")]
    UserNamespace {
        /// What was tried.
        step: &'static str,
        /// The settings that stand in the way, or all that may.
        fix: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A namespace could not be set up.
    #[error("namespace {label}: {step}: {source}{}", hint(.source))]
    Namespace {
        /// The label of the namespace.
        label: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// An interface, address or route could not be changed.
    #[error("namespace {label}: {what}: {source}")]
    Link {
        /// The label of the namespace.
        label: String,
        /// What was asked of the kernel, as a person would say it.
        what: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// An address or a prefix that is none.
    #[error(transparent)]
    Cidr(#[from] ParseCidrError),
    /// [`Namespace::run`](crate::Namespace::run) without root.
    #[error(
        "code of this process can only run inside a namespace as root: a process with several \
         threads may not enter a user namespace (fix: run as root, or start a program with \
         Namespace::command)"
    )]
    RunNeedsRoot,
    /// A program that the lab needs is not there, or failed.
    #[error("{program}: {problem}")]
    Program {
        /// The program.
        program: &'static str,
        /// What went wrong.
        problem: String,
    },
    /// A WireGuard daemon could not be started, or did not do what it was told.
    #[error("{program}: {problem}")]
    Daemon {
        /// The program.
        program: String,
        /// What went wrong.
        problem: String,
    },
}

/// What helps against a shortage, which the bare error text does not tell.
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
