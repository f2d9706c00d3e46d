//! Errors of a lab, with the fix in the message if there is one.

use std::{fmt::Display, io};

use convoy_process::tun_fix;

/// An error of a lab or of something in it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// `/dev/net/tun` cannot be opened.
    #[error("/dev/net/tun cannot be opened: {0} (fix: {fix})", fix = tun_fix(.0))]
    Tun(#[source] io::Error),
    /// Not root, and the kernel refuses a user namespace.
    #[error("not root, and the kernel refuses a user namespace: {source} (fix: {fix})")]
    UserNamespace {
        /// Commands that change the responsible settings.
        fix: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// [`Namespace::run`](crate::Namespace::run) without root.
    #[error(
        "code of this process can only run inside a namespace as root: a process with several \
         threads may not enter a user namespace (fix: run as root, or start a program with \
         Namespace::command)"
    )]
    RunNeedsRoot,
    /// A program such as `ip` or a WireGuard daemon is missing or failed.
    #[error("{program}: {problem}")]
    Program {
        /// The program, with its namespace and arguments if these identify it.
        program: String,
        /// The problem, as the program reported it if it ran.
        problem: String,
    },
    /// A system call failed, in a traffic job or while setting up a namespace or a socket in it.
    #[error("{doing}: {source}{}", hint(.source))]
    Io {
        /// The step that failed.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A traffic agent ended, does not answer, sends something unintelligible, or refuses a job.
    #[error("{0}")]
    Traffic(String),
    /// A traffic agent reports that its job failed.
    #[error("{0}")]
    Job(String),
    /// The two ends of a tunnel cannot reach each other.
    #[error("no packet passed the tunnel {0}")]
    NoPassage(String),
}

/// The outcome of a call of this crate.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Names the step during which a system call fails.
pub(crate) trait Doing<T> {
    fn doing(self, doing: impl Display) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl Display) -> Result<T> {
        self.map_err(|error| LabError::Io {
            doing: doing.to_string(),
            source: error.into(),
        })
    }
}

/// The fix for a resource shortage, which the kernel's error text does not name.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => " (fix: free some memory; the kernel has none left)",
        Some(libc::ENOSPC) => {
            " (fix: raise `sysctl user.max_net_namespaces user.max_mnt_namespaces`)"
        }
        Some(libc::EPERM) => {
            " (fix: run as root; in a container, add CAP_SYS_ADMIN and CAP_NET_ADMIN)"
        }
        _ => "",
    }
}
