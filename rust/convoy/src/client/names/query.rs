//! One name server's answer.

use std::{net::IpAddr, pin::pin, time::Duration};

use futures_util::future::select;
use hickory_resolver::{
    Resolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig},
    net::{DnsError, NetError, runtime::TokioHandle},
    proto::rr::{Name, RecordType},
};

use super::{
    servers::Server,
    sockets::{Sockets, interface_name},
};

/// How long a server may take: two rounds of three queries each.
const ROUND: Duration = Duration::from_millis(2_500);
const FURTHER_ROUNDS: usize = 1;
/// How long to wait for addresses of the other family once there are some of one (RFC 8305 §3 has 50 ms, for a
/// reader who waits).
const OTHER_FAMILY: Duration = Duration::from_millis(500);

/// Why there is no address; of two reasons, the greater one says more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum Failure {
    #[error("no name server outside of the tunnel")]
    NoServer,
    #[error("the name servers do not answer")]
    Silence,
    #[error("cannot ask the name servers: {0}")]
    Socket(String),
    #[error("the name server refuses: {0}")]
    Refused(String),
    #[error("name not found")]
    NotFound,
}

/// A question to one server.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) name: &'a str,
    /// Domains that complete a name without dots.
    pub(super) search: &'a [String],
    pub(super) server: &'a Server,
    pub(super) port: u16,
    pub(super) mark: Option<u32>,
}

impl Question<'_> {
    /// Asks for the addresses of both families; at least one.
    pub(super) async fn ask(self) -> Result<Vec<IpAddr>, Failure> {
        let resolver = self.resolver()?;
        let v6 = pin!(addresses(&resolver, self.name, RecordType::AAAA));
        let v4 = pin!(addresses(&resolver, self.name, RecordType::A));
        let (first, other) = select(v6, v4).await.factor_first();
        match first {
            Err(failure) => other.await.map_err(|other| failure.max(other)),
            Ok(mut found) => {
                if let Ok(Ok(more)) = tokio::time::timeout(OTHER_FAMILY, other).await {
                    found.extend(more);
                }
                Ok(found)
            }
        }
    }

    fn resolver(&self) -> Result<Resolver<Sockets>, Failure> {
        let search = self
            .search
            .iter()
            .filter_map(|it| Name::from_ascii(it).ok());
        let mut server = NameServerConfig::udp_and_tcp(self.server.address);
        server
            .connections
            .iter_mut()
            .for_each(|it| it.port = self.port);
        let config = ResolverConfig::from_parts(None, search.collect(), vec![server]);
        let sockets = Sockets {
            handle: TokioHandle::default(),
            mark: self.mark,
            interface: self.server.zone.as_deref().map(interface_name),
        };
        let mut builder = Resolver::builder_with_config(config, sockets);
        let options = builder.options_mut();
        options.timeout = ROUND;
        options.attempts = FURTHER_ROUNDS;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // The answers are short, and some routers drop queries with extensions.
        options.edns0 = false;
        builder.build().map_err(|error| failure(&error))
    }
}

async fn addresses(
    resolver: &Resolver<Sockets>,
    name: &str,
    family: RecordType,
) -> Result<Vec<IpAddr>, Failure> {
    let lookup = resolver.lookup(name, family).await;
    let lookup = lookup.map_err(|error| failure(&error))?;
    let records = lookup.answers().iter();
    let found: Vec<_> = records.filter_map(|record| record.data.ip_addr()).collect();
    match found.is_empty() {
        true => Err(Failure::NotFound),
        false => Ok(found),
    }
}

fn failure(error: &NetError) -> Failure {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => Failure::NotFound,
        NetError::Dns(DnsError::ResponseCode(code)) => Failure::Refused(code.to_string()),
        NetError::Timeout | NetError::NoConnections => Failure::Silence,
        NetError::Io(error) => Failure::Socket(error.to_string()),
        other => Failure::Refused(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
