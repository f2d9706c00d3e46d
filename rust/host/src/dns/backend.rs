//! Services that set name servers.

use std::path::Path;

use super::{Bus, Resolving, content, resolvconf};
use crate::{desired::Dns, options::Options, programs::Programs, resolv_conf::leads_to_resolved};

/// The service that sets name servers on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Resolved,
    Resolvconf,
    File,
}

impl Backend {
    /// Returns the first of the three that this host has. systemd-resolved counts only if programs use it and it runs
    /// in this network namespace.
    pub(crate) async fn find(bus: &mut Bus, programs: &Programs, options: &Options) -> Self {
        if leads_to_resolved(options) && bus.has_resolved_here().await {
            Self::Resolved
        } else if resolvconf::is_installed(programs) {
            Self::Resolvconf
        } else {
            Self::File
        }
    }

    /// The state that gives the interface's servers; `None` if there are none.
    pub(crate) fn resolving(
        self,
        interface: &str,
        index: u32,
        dns: &Dns,
        resolv_conf: &Path,
    ) -> Option<Resolving> {
        if dns.servers.is_empty() {
            return None;
        }
        let content = content(interface, dns);
        Some(match self {
            Self::Resolved => Resolving::Resolved {
                index,
                servers: dns.servers.clone(),
                search: dns.search.clone(),
            },
            Self::Resolvconf => Resolving::Resolvconf {
                record: resolvconf::record(interface),
                input: content,
            },
            Self::File => Resolving::File {
                path: resolv_conf.to_owned(),
                content,
            },
        })
    }
}
