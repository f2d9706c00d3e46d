//! Names, asked for through the stack itself.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hickory_resolver::{
    Resolver,
    config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig},
    net::{
        DnsError, NetError,
        runtime::{
            DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime, iocompat::AsyncIoTokioAsStd,
        },
    },
    proto::rr::Name,
};
use tokio::time::timeout;

use super::{Settings, datagrams::StackDatagrams, shared::Shared, stream::FlowStream};
use crate::network::Packets;

/// How long each server may take, and how often each is asked again.
const PATIENCE: Duration = Duration::from_secs(3);
const FURTHER_ATTEMPTS: usize = 1;
/// Names that are remembered.
const MOST_REMEMBERED: u64 = 1024;
/// How long a connection to a server may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Asks the servers of the settings.
pub(super) struct Names(Option<Resolver<Inside>>);

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Names")
    }
}

impl Names {
    pub(super) fn new(shared: &Arc<Shared>, settings: &Settings) -> io::Result<Self> {
        if settings.dns.is_empty() {
            return Ok(Self(None));
        }
        let search = settings.search.iter();
        let search = search.filter_map(|it| Name::from_utf8(it).ok()).collect();
        let servers = settings.dns.iter().map(|server| {
            let mut config = NameServerConfig::udp_and_tcp(server.ip());
            let connections = config.connections.iter_mut();
            connections.for_each(|it| it.port = server.port());
            config
        });
        let config = ResolverConfig::from_parts(None, search, servers.collect());
        let inside = Inside {
            shared: Arc::clone(shared),
            handle: TokioHandle::default(),
        };
        let mut builder = Resolver::builder_with_config(config, inside);
        let options = builder.options_mut();
        options.timeout = PATIENCE;
        options.attempts = FURTHER_ATTEMPTS;
        options.cache_size = MOST_REMEMBERED;
        options.use_hosts_file = ResolveHosts::Never;
        let has_family = |ipv4| {
            let mut addresses = settings.addresses.iter();
            addresses.any(|(address, _)| address.is_ipv4() == ipv4)
        };
        options.ip_strategy = match (has_family(true), has_family(false)) {
            (true, true) => LookupIpStrategy::Ipv6AndIpv4,
            (true, false) => LookupIpStrategy::Ipv4Only,
            _ => LookupIpStrategy::Ipv6Only,
        };
        builder
            .build()
            .map(Some)
            .map(Self)
            .map_err(io::Error::other)
    }

    /// The addresses of a name; a lookup begins in the runtime of its caller.
    pub(super) async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let Some(resolver) = &self.0 else {
            let reason = "no name server is known for the tunnel: give one as DNS";
            return Err(io::Error::new(ErrorKind::Unsupported, reason));
        };
        match resolver.lookup_ip(name).await {
            Ok(found) => Ok(found.iter().map(|it| SocketAddr::new(it, port)).collect()),
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => Ok(Vec::new()),
            Err(NetError::Timeout) => Err(ErrorKind::TimedOut.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// Opens connections and datagram sockets in the stack.
#[derive(Clone)]
struct Inside {
    shared: Arc<Shared>,
    handle: TokioHandle,
}

impl RuntimeProvider for Inside {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = InsideDatagrams;
    type Tcp = AsyncIoTokioAsStd<FlowStream>;

    fn create_handle(&self) -> Self::Handle {
        self.handle.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        _: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let stream = shared.connect(server)?;
            timeout(patience.unwrap_or(CONNECT_PATIENCE), stream.connected()).await??;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    /// Connects the socket, so that it hears the server alone.
    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let any = SocketAddr::new(local.ip(), 0);
            let bound = shared.table().bind(any, false)?;
            let datagrams = StackDatagrams { shared, bound };
            datagrams.connect(server)?;
            Ok(InsideDatagrams(datagrams))
        })
    }
}

struct InsideDatagrams(StackDatagrams);

impl DnsUdpSocket for InsideDatagrams {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        loop {
            ready!(self.0.poll_readable(context));
            match self.0.try_recv_from(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn poll_send_to(
        &self,
        _: &mut Context<'_>,
        datagram: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.try_send(datagram, Some(to)))
    }
}
