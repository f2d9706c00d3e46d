//! Name servers: systemd-resolved, else resolvconf, else resolv.conf itself.

mod backend;
mod file;
mod resolvconf;
mod resolved;

use std::{fmt, net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{error::HostError, programs::Programs};

pub(crate) use backend::Backend;
pub(crate) use file::{Original, content};
pub(crate) use resolved::{Bus, Owners};

/// Name servers, as one backend sets them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resolving {
    /// By systemd-resolved, for the link with this index.
    Resolved {
        index: u32,
        servers: Vec<IpAddr>,
        search: Vec<String>,
    },
    /// By `resolvconf -a RECORD`.
    Resolvconf { record: String, input: String },
    /// By this content of resolv.conf.
    File { path: PathBuf, content: String },
}

impl Resolving {
    /// Identifies the record that changes: equal for two states of it.
    pub(crate) fn slot(&self) -> Self {
        match self.clone() {
            Self::Resolved { index, .. } => Self::Resolved {
                index,
                servers: Vec::new(),
                search: Vec::new(),
            },
            Self::Resolvconf { record, .. } => Self::Resolvconf {
                record,
                input: String::new(),
            },
            Self::File { path, .. } => Self::File {
                path,
                content: String::new(),
            },
        }
    }

    /// Sets the servers, or sets them again.
    pub(crate) async fn make(&self, bus: &mut Bus, programs: &Programs) -> Result<(), HostError> {
        match self {
            Self::Resolved {
                index,
                servers,
                search,
            } => bus.set(*index, servers, search).await,
            Self::Resolvconf { record, input } => resolvconf::add(programs, record, input).await,
            Self::File { path, content } => file::write(path, content),
        }
    }

    /// Restores the host's former servers. `below` is the content that another tunnel wants for the same resolv.conf.
    pub(crate) async fn unmake(
        &self,
        bus: &mut Bus,
        programs: &Programs,
        before: &Original,
        below: Option<&str>,
    ) -> Result<(), HostError> {
        match self {
            Self::Resolved { index, .. } => bus.revert(*index).await,
            Self::Resolvconf { record, .. } => resolvconf::remove(programs, record).await,
            Self::File { path, content } if Original::is_text(path, content) => match below {
                Some(below) => file::write(path, below),
                None => file::restore(path, before),
            },
            // Another program has taken it over.
            Self::File { .. } => Ok(()),
        }
    }

    /// Removes what a crash left of a new resolv.conf.
    pub(crate) fn remove_unfinished(&self) {
        if let Self::File { path, .. } = self {
            file::remove_unfinished(path);
        }
    }
}

impl fmt::Display for Resolving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolved { .. } => write!(f, "name servers in systemd-resolved"),
            Self::Resolvconf { record, .. } => write!(f, "name servers in resolvconf, {record}"),
            Self::File { path, .. } => write!(f, "name servers in {}", path.display()),
        }
    }
}
