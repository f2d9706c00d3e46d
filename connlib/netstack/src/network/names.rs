//! Looks names up inside a tunnel, by its own name servers alone.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    Resolver,
    config::{
        LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ServerOrderingStrategy,
    },
    net::{
        DnsError, NetError,
        runtime::{RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd},
    },
    proto::rr::Name,
};
use nix::sys::socket::{SockaddrStorage, bind};
use tokio::{
    net::{TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};

use super::{Answer, Family, OpenSockets, SocketKind};

/// How long each attempt may take, and how many further ones there are.
const ATTEMPT: Duration = Duration::from_millis(2_500);
const FURTHER_ATTEMPTS: usize = 2;
/// Names whose addresses are remembered for as long as their servers say.
const MOST_REMEMBERED: u64 = 1_024;
/// How long a connection to a server may take.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Whom to ask for names, and for which addresses.
#[derive(Clone, Debug, Default)]
pub struct NameServers {
    /// In the order in which they are asked.
    pub servers: Vec<SocketAddr>,
    /// Domains that complete a name.
    pub search: Vec<String>,
    /// The families of addresses that the tunnel has.
    pub families: Vec<Family>,
}

/// Looks names up with sockets that `P` makes.
pub(crate) struct Names<P: RuntimeProvider>(Option<Resolver<P>>);

impl<P: RuntimeProvider> fmt::Debug for Names<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

impl<P: RuntimeProvider> Names<P> {
    pub(crate) fn new(it: &NameServers, sockets: P) -> io::Result<Self> {
        if it.servers.is_empty() {
            return Ok(Self(None));
        }
        let search = it.search.iter();
        let search = search.filter_map(|it| Name::from_ascii(it).ok()).collect();
        let servers = it.servers.iter().map(|server| {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            let connections = config.connections.iter_mut();
            connections.for_each(|it| it.port = server.port());
            config
        });
        let config = ResolverConfig::from_parts(None, search, servers.collect());
        let mut builder = Resolver::builder_with_config(config, sockets);
        let options = builder.options_mut();
        options.timeout = ATTEMPT;
        options.attempts = FURTHER_ATTEMPTS;
        options.cache_size = MOST_REMEMBERED;
        options.use_hosts_file = ResolveHosts::Never;
        options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
        // The answers are short, and some routers drop queries with extensions.
        options.edns0 = false;
        options.ip_strategy =
            match [Family::V4, Family::V6].map(|family| it.families.contains(&family)) {
                [true, false] => LookupIpStrategy::Ipv4Only,
                [false, true] => LookupIpStrategy::Ipv6Only,
                _ => LookupIpStrategy::Ipv4AndIpv6,
            };
        let resolver = builder.build().map_err(io::Error::other)?;
        Ok(Self(Some(resolver)))
    }

    /// The addresses of a name, or none; a lookup begins in the runtime of its caller.
    pub(crate) async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let Some(resolver) = &self.0 else {
            let reason = "no name server is known for the tunnel: give one as DNS";
            return Err(io::Error::new(ErrorKind::NotFound, reason));
        };
        let mut found: Vec<IpAddr> = match resolver.lookup_ip(name).await {
            Ok(found) => found.iter().collect(),
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => Vec::new(),
            Err(error) => return Err(failure(error)),
        };
        // Where only one of them works, that is rarely IPv6.
        found.sort_by_key(IpAddr::is_ipv6);
        let found = found.into_iter();
        Ok(found.map(|address| (address, port).into()).collect())
    }
}

fn failure(error: NetError) -> io::Error {
    match &error {
        NetError::Io(inner) => match inner.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(inner.kind(), inner.to_string()),
        },
        NetError::Timeout => ErrorKind::TimedOut.into(),
        _ => io::Error::other(error),
    }
}

/// Sockets of a network namespace, with names that its own name servers know.
#[derive(Debug)]
pub struct WithNames {
    sockets: Arc<dyn OpenSockets>,
    names: Names<Through>,
}

impl WithNames {
    /// Has name servers asked by sockets of the same namespace.
    ///
    /// # Errors
    /// Those of making a resolver.
    pub fn new(sockets: Arc<dyn OpenSockets>, servers: &NameServers) -> io::Result<Self> {
        let through = Through {
            handle: TokioHandle::default(),
            sockets: Arc::clone(&sockets),
        };
        let names = Names::new(servers, through)?;
        Ok(Self { sockets, names })
    }
}

impl OpenSockets for WithNames {
    fn open(&self, kind: SocketKind, family: Family) -> Answer<'_, OwnedFd> {
        self.sockets.open(kind, family)
    }

    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Answer<'a, Vec<SocketAddr>> {
        Box::pin(self.names.resolve(name, port))
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
            let stream = timeout(patience.unwrap_or(CONNECT_PATIENCE), connected).await??;
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
