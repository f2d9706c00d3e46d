//! The host's resolver.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{
        NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
    },
    net::{NetError, runtime::TokioRuntimeProvider},
    system_conf::parse_resolv_conf,
};
use tokio::time::Instant;
use tracing::warn;

/// Where names of this host are defined.
const HOSTS: &str = "/etc/hosts";
/// Answers that are remembered, each for as long as its servers say.
const REMEMBERED: u64 = 1024;
/// How often the files are checked for changes.
const CHECK: Duration = Duration::from_secs(1);

/// Who is asked.
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
        Self::File("/etc/resolv.conf".into())
    }
}

/// A resolver that follows its configuration.
#[derive(Debug)]
pub(super) struct Source {
    upstream: Upstream,
    current: Mutex<Current>,
}

struct Current {
    resolver: TokioResolver,
    stamps: [Option<Stamp>; 2],
    checked: Instant,
}

/// What of a file changes when it is written or replaced: inode, length, and time in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

impl Source {
    pub(super) fn open(upstream: Upstream) -> Result<Self, NetError> {
        let stamps = upstream.stamps();
        let current = Mutex::new(Current {
            resolver: upstream.resolver()?,
            stamps,
            checked: Instant::now(),
        });
        Ok(Self { upstream, current })
    }

    pub(super) fn resolver(&self) -> TokioResolver {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= CHECK {
            current.checked = Instant::now();
            let stamps = self.upstream.stamps();
            if stamps != current.stamps {
                match self.upstream.resolver() {
                    Ok(resolver) => (current.resolver, current.stamps) = (resolver, stamps),
                    Err(error) => warn!("cannot follow the host's resolver: {error}"),
                }
            }
        }
        current.resolver.clone()
    }
}

impl Upstream {
    fn stamps(&self) -> [Option<Stamp>; 2] {
        match self {
            Self::File(path) => [path.as_path(), Path::new(HOSTS)].map(stamp),
            Self::Servers(_) => [None, None],
        }
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let (mut config, mut options) = match self {
            Self::File(path) => configuration(path),
            Self::Servers(servers) => {
                let servers = servers.iter().map(server_at).collect();
                let mut options = ResolverOpts::default();
                options.use_hosts_file = ResolveHosts::Never;
                (
                    ResolverConfig::from_parts(None, Vec::new(), servers),
                    options,
                )
            }
        };
        options.cache_size = REMEMBERED;
        options.preserve_intermediates = true;
        // As the C library does: the next one only if one does not answer.
        options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
        options.num_concurrent_reqs = 1;
        // Clients complete names themselves.
        config = ResolverConfig::from_parts(None, Vec::new(), config.name_servers().to_vec());
        let provider = TokioRuntimeProvider::default();
        let mut builder = TokioResolver::builder_with_config(config, provider);
        *builder.options_mut() = options;
        builder.build()
    }
}

/// What resolv.conf(5) says; where it says nothing, there is a server on this host.
fn configuration(path: &Path) -> (ResolverConfig, ResolverOpts) {
    let read = fs::read(path).map_err(NetError::from);
    read.and_then(parse_resolv_conf).unwrap_or_else(|_| {
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
        (config, ResolverOpts::default())
    })
}

fn server_at(address: &SocketAddr) -> NameServerConfig {
    let ip: IpAddr = address.ip();
    let mut server = NameServerConfig::udp_and_tcp(ip);
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found: io::Result<fs::Metadata> = fs::metadata(path);
    let found = found.ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}
