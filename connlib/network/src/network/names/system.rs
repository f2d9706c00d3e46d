//! The host's own name servers.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
};

use hickory_resolver::{
    Hosts, Resolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    system_conf::parse_resolv_conf,
};

use super::{bounded::Bounded, servers::Servers};

/// The file that names the servers of this host.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The port of name servers, unless their addresses have another.
const PORT: u16 = 53;

/// The name servers of this host.
pub type SystemServers = Servers<Bounded<TokioRuntimeProvider>>;

/// Facts of a file that change when it is written or replaced: inode, length, and time in seconds and nanoseconds.
pub type Stamp = (u64, u64, i64, i64);

/// Returns the facts of a file, if there is one.
#[must_use]
pub fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// Returns what resolv.conf(5) says; where it says nothing, there is a server on this host.
#[must_use]
pub fn configuration(path: &Path) -> (ResolverConfig, ResolverOpts) {
    let read = fs::read(path).map_err(NetError::from);
    read.and_then(parse_resolv_conf).unwrap_or_else(|_| {
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
        (config, ResolverOpts::default())
    })
}

/// Makes a resolver for each server, which completes no name and knows those of `hosts`.
///
/// # Errors
/// If one cannot be made.
pub fn servers(
    config: &ResolverConfig,
    mut options: ResolverOpts,
    hosts: &Arc<Hosts>,
) -> Result<SystemServers, NetError> {
    // They are read once.
    options.use_hosts_file = ResolveHosts::Never;
    // As the C library does once a server does not know extensions: it tells by many words, or none.
    options.edns0 = false;
    SystemServers::limit(&mut options);
    let resolver = |server: &NameServerConfig| {
        let port = server.connections.first().map_or(PORT, |it| it.port);
        let at = SocketAddr::new(server.ip, port);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server.clone()]);
        let provider = Bounded(TokioRuntimeProvider::default());
        let mut builder = Resolver::builder_with_config(config, provider);
        builder.options_mut().clone_from(&options);
        let mut resolver = builder.build()?;
        resolver.set_hosts(Arc::clone(hosts));
        Ok::<_, NetError>((at, resolver))
    };
    let servers = config.name_servers().iter();
    let servers: Vec<_> = servers.map(resolver).collect::<Result<_, _>>()?;
    Ok(Servers::new(servers))
}
