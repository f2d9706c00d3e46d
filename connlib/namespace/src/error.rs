//! Why there is no namespace.

use std::io;

use convoy_process::user_namespace_fix;

use super::protocol::Refusal;

/// Why a namespace cannot be had or used.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel refuses this user a user namespace, or what belongs into one.
    #[error("the kernel refuses a user namespace: {source} (fix: {fix})")]
    User {
        /// Commands that change the responsible settings.
        fix: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The TUN cannot be opened.
    #[error("{reason}{}", after_colon(.fix.as_deref()))]
    Tun {
        /// The reason.
        reason: String,
        /// The fix, if it is known.
        fix: Option<String>,
    },
    /// The kernel cannot lead peers' flows out of the namespace.
    #[error("this system has no NAT in user space: {reason} (fix: {fix})")]
    Gateway {
        /// The reason.
        reason: String,
        /// The fix.
        fix: String,
    },
    /// A step within the namespace failed.
    #[error("cannot {doing}: {source}")]
    Inside {
        /// The step.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses a socket.
    #[error("no socket inside the namespace: {0}")]
    Socket(#[source] io::Error),
    /// The process that holds the namespace cannot be started.
    #[error("cannot start the process that holds the namespace: {0}")]
    Holder(#[source] io::Error),
    /// The process that holds the namespace has ended.
    #[error("the process that holds the namespace has ended")]
    Ended,
}

impl NamespaceError {
    pub(super) fn user(source: io::Error) -> Self {
        match source.kind() {
            // Of the program, as namespaces fail in other ways.
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                if source.raw_os_error() != Some(libc::EPERM) =>
            {
                Self::Holder(source)
            }
            _ => Self::User {
                fix: user_namespace_fix(&source),
                source,
            },
        }
    }

    pub(super) fn holder(source: io::Error) -> Self {
        Self::Holder(source)
    }
}

fn after_colon(fix: Option<&str>) -> String {
    fix.map_or_else(String::new, |fix| format!(": {fix}"))
}

impl From<Refusal> for NamespaceError {
    fn from(refusal: Refusal) -> Self {
        let errno = io::Error::from_raw_os_error;
        match refusal {
            Refusal::Tun { reason, fix } => Self::Tun { reason, fix },
            Refusal::Gateway { reason, fix } => Self::Gateway { reason, fix },
            Refusal::Step { doing, error } => Self::Inside {
                doing,
                source: errno(error),
            },
            Refusal::Socket(error) => Self::Socket(errno(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_no_refusal_of_the_kernel() {
        let of = |errno| NamespaceError::user(io::Error::from_raw_os_error(errno));
        for errno in [libc::ENOENT, libc::EACCES] {
            assert!(matches!(of(errno), NamespaceError::Holder(_)));
        }
        for errno in [libc::EPERM, libc::ENOSPC, libc::EINVAL, libc::EUSERS] {
            assert!(matches!(of(errno), NamespaceError::User { .. }));
        }
    }
}
