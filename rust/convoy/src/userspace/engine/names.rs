//! Looks names up inside a namespace, by the tunnel's own name servers alone.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd as _, OwnedFd},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use convoy_config::Config;
use convoy_netstack::network::{Answer, Family, OpenSockets, SocketKind};
use hickory_resolver::{
    Resolver,
    config::{
        LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ServerOrderingStrategy,
    },
    net::{
        NetError,
        runtime::{RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd},
    },
    proto::rr::Name,
};
use nix::sys::socket::{SockaddrStorage, bind};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// How long each attempt may take, and how many further ones there are.
const ATTEMPT: Duration = Duration::from_millis(2_500);
const FURTHER_ATTEMPTS: usize = 2;
/// Names whose addresses are remembered for as long as their servers say.
const REMEMBERED: u64 = 1_024;

/// Sockets of a namespace, with names.
pub(super) struct WithNames {
    sockets: Arc<dyn OpenSockets>,
    /// `None` without name servers.
    resolver: Option<Resolver<Through>>,
}

impl WithNames {
    pub(super) fn new(sockets: Arc<dyn OpenSockets>, config: &Config) -> Self {
        let through = Through {
            handle: TokioHandle::default(),
            sockets: Arc::clone(&sockets),
        };
        Self {
            resolver: resolver(config, through),
            sockets,
        }
    }
}

fn resolver(config: &Config, through: Through) -> Option<Resolver<Through>> {
    let it = &config.interface;
    let servers = it.dns_servers.iter();
    let servers: Vec<_> = servers
        .map(|server| NameServerConfig::udp_and_tcp(server.value))
        .collect();
    if servers.is_empty() {
        return None;
    }
    let search = it.dns_domains.iter().filter(|domain| !domain.route_only);
    let search = search.filter_map(|domain| Name::from_ascii(&domain.name).ok());
    let servers = ResolverConfig::from_parts(None, search.collect(), servers);
    let mut builder = Resolver::builder_with_config(servers, through);
    let options = builder.options_mut();
    options.timeout = ATTEMPT;
    options.attempts = FURTHER_ATTEMPTS;
    options.cache_size = REMEMBERED;
    options.use_hosts_file = ResolveHosts::Never;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    options.ip_strategy = strategy(config);
    // As for endpoints' names.
    options.edns0 = false;
    builder.build().ok()
}

/// The families that the tunnel has.
fn strategy(config: &Config) -> LookupIpStrategy {
    let mut own = config.interface.addresses.iter();
    let has_ipv4 = own.any(|it| it.address.is_ipv4());
    let mut own = config.interface.addresses.iter();
    let has_ipv6 = own.any(|it| it.address.is_ipv6());
    match (has_ipv4, has_ipv6) {
        (true, false) => LookupIpStrategy::Ipv4Only,
        (false, true) => LookupIpStrategy::Ipv6Only,
        _ => LookupIpStrategy::Ipv4AndIpv6,
    }
}

impl OpenSockets for WithNames {
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd> {
        self.sockets.open(kind, family)
    }

    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(async move {
            let Some(resolver) = &self.resolver else {
                let missing = "the tunnel has no name servers";
                return Err(io::Error::new(io::ErrorKind::NotFound, missing));
            };
            let found = resolver.lookup_ip(name).await.map_err(failure)?;
            let mut found: Vec<IpAddr> = found.iter().collect();
            // Where only one of them works, that is rarely IPv6.
            found.sort_by_key(IpAddr::is_ipv6);
            let found = found.into_iter();
            Ok(found.map(|address| (address, port).into()).collect())
        })
    }
}

impl fmt::Debug for WithNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WithNames");
        shown
            .field("sockets", &self.sockets)
            .finish_non_exhaustive()
    }
}

fn failure(error: NetError) -> io::Error {
    match &error {
        NetError::Io(inner) => match inner.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(inner.kind(), inner.to_string()),
        },
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        _ => io::Error::other(error),
    }
}

/// Makes the sockets for queries inside.
#[derive(Clone)]
struct Through {
    handle: TokioHandle,
    sockets: Arc<dyn OpenSockets>,
}

impl RuntimeProvider for Through {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> Self::Handle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        _: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        let sockets = Arc::clone(&self.sockets);
        Box::pin(async move {
            let socket = sockets.open(SocketKind::Tcp, Family::of(&server)).await?;
            let connected = TcpSocket::from_std_stream(socket.into()).connect(server);
            let stream = match patience {
                Some(patience) => tokio::time::timeout(patience, connected).await??,
                None => connected.await?,
            };
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        _: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        let sockets = Arc::clone(&self.sockets);
        Box::pin(async move {
            let socket = sockets.open(SocketKind::Udp, Family::of(&local)).await?;
            bind(socket.as_raw_fd(), &SockaddrStorage::from(local))?;
            UdpSocket::from_std(socket.into())
        })
    }
}
