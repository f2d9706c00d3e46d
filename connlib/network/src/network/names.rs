//! Looks names up inside a tunnel, by its own name servers alone.

pub mod bounded;
pub mod servers;
pub mod special;
pub mod system;

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    Resolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig},
    net::{
        NetError,
        runtime::{RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd},
    },
    proto::rr::{Name, RecordType},
};
use nix::sys::socket::{SockaddrStorage, bind};
use tokio::{
    net::{TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};

use super::{Answer, Family, OpenSockets, SocketKind};
use bounded::Bounded;
use servers::Servers;

/// How long the addresses of one family are waited for once those of the other are there (RFC 8305 §3).
const OTHER_FAMILY: Duration = Duration::from_millis(50);
/// Names whose addresses are remembered for as long as their servers say.
const MOST_REMEMBERED: u64 = 1_024;
/// Time limit for a connection to a server.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Servers to ask for names, and for which addresses.
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
pub struct Names<P: RuntimeProvider> {
    /// None if there are none to be asked.
    servers: Option<Servers<Bounded<P>>>,
    /// Domains that complete a name.
    search: Vec<Name>,
    families: [bool; 2],
}

impl<P: RuntimeProvider> fmt::Debug for Names<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

impl<P: RuntimeProvider> Names<P> {
    /// Creates the names of a network whose sockets `sockets` opens.
    ///
    /// # Errors
    /// If its resolver cannot be made.
    pub fn new(it: &NameServers, sockets: P) -> io::Result<Self> {
        let search = it.search.iter();
        let search: Vec<_> = search.filter_map(|it| Name::from_ascii(it).ok()).collect();
        let resolver = |server: &SocketAddr| {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            let connections = config.connections.iter_mut();
            connections.for_each(|it| it.port = server.port());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![config]);
            let mut builder = Resolver::builder_with_config(config, Bounded(sockets.clone()));
            let options = builder.options_mut();
            Servers::<Bounded<P>>::limit(options);
            options.cache_size = MOST_REMEMBERED;
            options.use_hosts_file = ResolveHosts::Never;
            // The answers are short, and some routers drop queries with extensions.
            options.edns0 = false;
            let resolver = builder.build().map_err(io::Error::other)?;
            io::Result::Ok((*server, resolver))
        };
        let resolvers: Vec<_> = it.servers.iter().map(resolver).collect::<Result<_, _>>()?;
        let has = [Family::V4, Family::V6].map(|family| it.families.contains(&family));
        Ok(Self {
            servers: (!resolvers.is_empty()).then(|| Servers::new(resolvers)),
            search,
            families: if has == [false; 2] { [true; 2] } else { has },
        })
    }

    /// The addresses of a name, or none; a lookup begins in the runtime of its caller.
    pub async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let Some(servers) = &self.servers else {
            let reason = "no name server is known for the tunnel: give one as DNS";
            return Err(io::Error::new(ErrorKind::NotFound, reason));
        };
        let invalid = |_| io::Error::from(ErrorKind::InvalidInput);
        let name = Name::from_utf8(name).map_err(invalid)?;
        let mut failed = None;
        for name in completed(&name, &self.search) {
            match self.addresses(servers, &name).await {
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    let found = found.into_iter();
                    return Ok(found.map(|address| (address, port).into()).collect());
                }
                Err(error) if error.is_nx_domain() => {}
                // The next name may still be known.
                Err(error @ NetError::Dns(_)) => failed = failed.or(Some(error)),
                Err(error) => return Err(failure(error)),
            }
        }
        failed.map_or(Ok(Vec::new()), |error| Err(failure(error)))
    }

    /// The addresses of a whole name, of the families that the tunnel has.
    async fn addresses(
        &self,
        servers: &Servers<Bounded<P>>,
        name: &Name,
    ) -> Result<Vec<IpAddr>, NetError> {
        let of = |kind| addresses(servers, name, kind);
        match self.families {
            [true, false] => of(RecordType::A).await,
            [false, true] => of(RecordType::AAAA).await,
            _ => of_both(of(RecordType::A), of(RecordType::AAAA)).await,
        }
    }
}

/// The whole names that a name may stand for, in the order in which they are looked up, as by resolv.conf(5). The
/// families of one are asked for before the next one: they would otherwise be those of different hosts. A special name
/// stands for itself alone, as the resolver answers it and no server is to hear of it.
fn completed(name: &Name, search: &[Name]) -> Vec<Name> {
    let mut whole = name.clone();
    whole.set_fqdn(true);
    if name.is_fqdn() || special::is_own(name) || special::is_nobodys(name) {
        return vec![whole];
    }
    let with = |suffix| name.clone().append_domain(suffix).ok();
    let mut names: Vec<_> = search.iter().filter_map(with).collect();
    let has_dots = name.num_labels() > 1;
    names.insert(if has_dots { 0 } else { names.len() }, whole);
    names
}

/// A name's addresses of one family. That there is no such name is an error.
async fn addresses<P: RuntimeProvider>(
    servers: &Servers<Bounded<P>>,
    name: &Name,
    kind: RecordType,
) -> Result<Vec<IpAddr>, NetError> {
    match servers.lookup(name.clone(), kind).await {
        Ok(found) => {
            let records = found.answers().iter();
            Ok(records.filter_map(|it| it.data.ip_addr()).collect())
        }
        Err(error) if error.is_no_records_found() && !error.is_nx_domain() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The addresses of both families, those of IPv4 first: where only one of them works, that is rarely IPv6. A family
/// whose answer is late, or an error, is left out if the other has some. If the answer for IPv4 is that there is no such
/// name, IPv6 is not waited for, either.
async fn of_both(
    v4: impl Future<Output = Result<Vec<IpAddr>, NetError>>,
    v6: impl Future<Output = Result<Vec<IpAddr>, NetError>>,
) -> Result<Vec<IpAddr>, NetError> {
    let (mut v4, mut v6) = (pin!(v4), pin!(v6));
    let has_some = |found: &Result<Vec<_>, _>| found.as_ref().is_ok_and(|it| !it.is_empty());
    let late = || Ok(Vec::new());
    let is_unknown =
        |found: &Result<_, NetError>| found.as_ref().is_err_and(NetError::is_nx_domain);
    let (v4, v6) = tokio::select! {
        found = &mut v4 => match has_some(&found) || is_unknown(&found) {
            true => (found, timeout(OTHER_FAMILY, v6).await.unwrap_or_else(|_| late())),
            false => (found, v6.await),
        },
        found = &mut v6 => match has_some(&found) {
            true => (timeout(OTHER_FAMILY, v4).await.unwrap_or_else(|_| late()), found),
            false => (v4.await, found),
        },
    };
    match (v4, v6) {
        (Ok(v4), Ok(v6)) => Ok([v4, v6].concat()),
        (Ok(some), Err(_)) | (Err(_), Ok(some)) if !some.is_empty() => Ok(some),
        (Err(error), _) | (_, Err(error)) => Err(error),
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
    /// Asks name servers by sockets of the same namespace.
    ///
    /// # Errors
    /// The errors of making a resolver.
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
            let socket = sockets
                .open(SocketKind::Tcp, Family::of(server.ip()))
                .await?;
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
            let socket = sockets
                .open(SocketKind::Udp, Family::of(local.ip()))
                .await?;
            bind(socket.as_raw_fd(), &SockaddrStorage::from(local))?;
            UdpSocket::from_std(socket.into())
        })
    }
}

#[cfg(test)]
mod tests;
