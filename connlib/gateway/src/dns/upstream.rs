//! The host's resolver.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hickory_resolver::{
    Hosts,
    config::{NameServerConfig, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::NetError,
    proto::{op::Query, rr::domain::usage},
};
use tokio::time::Instant;
use tracing::warn;

use super::{
    exchange::exchange,
    message::{Question, Response},
};
use convoy_network::names::{special, system};

/// Where names of this host are defined.
const HOSTS: &str = "/etc/hosts";
/// Answers that are remembered, each for as long as its servers say.
const REMEMBERED: u64 = 1024;
/// Interval between checks of the files for changes.
const CHECK: Duration = Duration::from_secs(1);

/// The servers that are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// As the programs of this host do, by a file in the format of resolv.conf(5), and by `/etc/hosts`. When a file
    /// changes, what it says applies from the next second on, and nothing is remembered from before.
    File(PathBuf),
    /// These servers in this order, and nobody else.
    Servers(Vec<SocketAddr>),
}

impl Upstream {
    /// The resolver of this host.
    #[must_use]
    pub fn system() -> Self {
        Self::File(system::RESOLV_CONF.into())
    }
}

/// A resolver that follows its configuration.
#[derive(Debug)]
pub(super) struct Source {
    upstream: Upstream,
    current: Mutex<Current>,
}

/// Looks names up: those of this host at once, all others by servers that are asked one after the other.
pub(super) struct Resolvers {
    servers: system::SystemServers,
    hosts: Arc<Hosts>,
}

struct Current {
    resolvers: Arc<Resolvers>,
    stamps: [Option<system::Stamp>; 2],
    checked: Instant,
}

impl Source {
    pub(super) fn open(upstream: Upstream) -> Result<Self, NetError> {
        let stamps = upstream.stamps();
        let current = Mutex::new(Current {
            resolvers: Arc::new(upstream.resolvers()?),
            stamps,
            checked: Instant::now(),
        });
        Ok(Self { upstream, current })
    }

    pub(super) fn resolvers(&self) -> Arc<Resolvers> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= CHECK {
            current.checked = Instant::now();
            let stamps = self.upstream.stamps();
            if stamps != current.stamps {
                match self.upstream.resolvers() {
                    Ok(resolvers) => {
                        (current.resolvers, current.stamps) = (Arc::new(resolvers), stamps);
                    }
                    Err(error) => warn!("cannot follow the host's resolver: {error}"),
                }
            }
        }
        Arc::clone(&current.resolvers)
    }
}

impl Resolvers {
    /// Finds the records of a name, which may be remembered.
    pub(super) async fn lookup(&self, query: &Query) -> Result<Lookup, NetError> {
        let (name, kind) = (query.name().clone(), query.query_type());
        self.servers.lookup(name, kind).await
    }

    /// Asks for a server's own answer; nothing of it is remembered.
    pub(super) async fn pass(&self, question: &Question) -> Result<Response, NetError> {
        let ask = self
            .servers
            .ask(|server| Box::pin(exchange(server.at, question)));
        ask.await
    }

    /// Returns whether a question is answered without a server: by `/etc/hosts`, or as its name is special (RFC 6761).
    pub(super) fn know(&self, query: &Query) -> bool {
        let name = query.name();
        let loopback = [&usage::IN_ADDR_ARPA_127, &usage::IP6_ARPA_1];
        let is_loopback = loopback.iter().any(|zone| zone.zone_of(name));
        let is_special = is_loopback || special::is_own(name) || special::is_nobodys(name);
        is_special || self.hosts.lookup_static_host(query).is_some()
    }
}

impl Upstream {
    fn stamps(&self) -> [Option<system::Stamp>; 2] {
        match self {
            Self::File(path) => [path.as_path(), Path::new(HOSTS)].map(system::stamp),
            Self::Servers(_) => [None, None],
        }
    }

    fn resolvers(&self) -> Result<Resolvers, NetError> {
        let (config, mut options, hosts) = match self {
            Self::File(path) => {
                let (config, options) = system::configuration(path);
                (config, options, Hosts::from_system().unwrap_or_default())
            }
            Self::Servers(servers) => {
                let servers = servers.iter().map(server_at).collect();
                let config = ResolverConfig::from_parts(None, Vec::new(), servers);
                (config, ResolverOpts::default(), Hosts::default())
            }
        };
        let hosts = Arc::new(hosts);
        options.cache_size = REMEMBERED;
        options.preserve_intermediates = true;
        Ok(Resolvers {
            // Clients complete names themselves.
            servers: system::servers(&config, options, &hosts)?,
            hosts,
        })
    }
}

fn server_at(address: &SocketAddr) -> NameServerConfig {
    let ip: IpAddr = address.ip();
    let mut server = NameServerConfig::udp_and_tcp(ip);
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}
