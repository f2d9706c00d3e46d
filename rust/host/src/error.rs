//! Errors.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{elsewhere::NetworkNamespace, programs::HANGS};

/// A change that failed: its object, the operation and the fix.
#[derive(Debug, Error)]
pub enum HostError {
    /// Not an interface name.
    #[error("invalid interface name `{0}`: use 1 to 15 letters, digits or any of _=+.-")]
    Name(String),
    /// The interface does not exist.
    #[error("interface {0} does not exist in this network namespace: start the tunnel first")]
    NoInterface(String),
    /// Another process changes the host for the same interface.
    #[error("{interface} is already up: another process holds {path} (end it, or take the tunnel down)", path = path.display())]
    Busy {
        /// The interface.
        interface: String,
        /// The journal.
        path: PathBuf,
    },
    /// The interface is up in another network namespace.
    #[error(
        "there is a tunnel {interface} in {namespace} already: choose another name, or take it down there \
         (`{entry} convoy down {interface}`)",
        entry = namespace.entry()
    )]
    Elsewhere {
        /// The interface.
        interface: String,
        /// The namespace.
        namespace: NetworkNamespace,
    },
    /// A default route or a kill switch needs a mark.
    #[error("{0}: a default route or kill switch needs a firewall mark: set the tunnel's fwmark")]
    MarkNeeded(String),
    /// The mark is the number of a table of the system, and would be that of the tunnel's.
    #[error(
        "the mark {0} is the number of a table of the system (default, main or local): choose another mark"
    )]
    SystemTable(u32),
    /// The kernel refused a change.
    #[error("cannot {operation} {object}: {cause}{fix}", fix = fix(cause))]
    Kernel {
        /// Such as "add".
        operation: &'static str,
        /// Such as "route 10.0.0.0/8 in table main".
        object: String,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// The host has a route to the same network.
    #[error("cannot add {route}: this host has one to the same network, {by}{fix}", fix = route_fix(*is_connected))]
    RouteTaken {
        /// Such as "route 10.0.0.0/8 in table main".
        route: String,
        /// The other one, as ip(8) shows it.
        by: String,
        /// Whether the host is connected to that network.
        is_connected: bool,
    },
    /// A file could not be read or written.
    #[error("cannot {operation} {path}: {cause}{fix}", path = path.display(), fix = fix(cause))]
    File {
        /// Such as "write".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// The journal was written by a program with another format.
    #[error("cannot read {path}, line {line}: {reason} (fix: remove it after checking `ip rule`, `nft list tables`)", path = path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The parser's reason.
        reason: String,
    },
    /// nftables cannot be used.
    #[error("{table}: cannot load the rules with nft: {reason}{fix}", fix = nft_fix(reason))]
    Nft {
        /// The table.
        table: String,
        /// The reason, as nft prints it.
        reason: String,
    },
    /// A DNS backend refused the servers.
    #[error("cannot set name servers with {backend}: {reason}")]
    Dns {
        /// Such as "resolvconf".
        backend: &'static str,
        /// Its reason.
        reason: String,
    },
}

impl HostError {
    pub(crate) fn kernel<E: Into<io::Error>>(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let object = object.into();
        move |cause| Self::Kernel {
            operation,
            object,
            cause: cause.into(),
        }
    }

    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File {
            operation,
            path,
            cause,
        }
    }
}

/// The remedy for an error of the kernel.
fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (run as root, or with CAP_NET_ADMIN)",
        io::ErrorKind::ReadOnlyFilesystem => " (the file system is read-only: remount it)",
        io::ErrorKind::StorageFull => " (the file system is full: free some space)",
        io::ErrorKind::AlreadyExists => " (another program made one: remove it)",
        io::ErrorKind::Unsupported => " (the kernel was built without it)",
        _ if error.raw_os_error() == Some(libc::ELOOP) => " (fix: remove the link in its place)",
        _ => "",
    }
}

fn route_fix(is_connected: bool) -> &'static str {
    if is_connected {
        " (fix: its local network has the same addresses: renumber one of both, or list single hosts or halves of the \
         network in AllowedIPs)"
    } else {
        " (fix: remove that route, or the network from AllowedIPs; `Table = off` adds no routes)"
    }
}

fn nft_fix(reason: &str) -> &'static str {
    if reason.contains("not installed") {
        " (fix: apt-get install nftables, or your distribution's package of it)"
    } else if reason.contains(HANGS) {
        " (fix: find out what it waits for: `nft list ruleset`)"
    } else if reason.contains("Operation not permitted") {
        " (run as root, or with CAP_NET_ADMIN)"
    } else {
        " (fix: modprobe nf_tables, or a kernel with nftables)"
    }
}
