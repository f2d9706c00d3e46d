//! One name server's answer.

use std::{net::IpAddr, pin::pin, time::Duration};

use futures_util::future::{Either, select};
use hickory_resolver::{
    Resolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig},
    net::{DnsError, NetError, runtime::TokioHandle},
    proto::rr::{Name, RecordType, domain::usage},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    servers::Server,
    sockets::{Sockets, interface_name, source_of},
    usable::{Flaw, Useless, usable},
};

/// Time limits for a server in all, and within that: two rounds of three queries each. A hostile one takes longer,
/// by other names to ask for or answers to fetch by TCP.
pub(super) const SERVER_TIME: Duration = Duration::from_secs(5);
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
    #[error("the name servers cannot be reached")]
    Unreachable,
    #[error("cannot ask the name servers: {0}")]
    Socket(String),
    #[error("the name server's answer is {0}")]
    Nonsense(&'static str),
    #[error("the name server refuses: {0}")]
    Refused(String),
    /// There is no such name, of either family.
    #[error("name not found")]
    Unknown,
    /// There may be records of the other family, or of other types.
    #[error("name not found")]
    NotFound,
    #[error("the name server says {0}")]
    Useless(Useless),
}

/// A question to one server.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) name: &'a str,
    /// Domains that complete a name.
    pub(super) search: &'a [String],
    pub(super) server: &'a Server,
    pub(super) port: u16,
    pub(super) mark: Option<u32>,
    /// The tunnel's own addresses.
    pub(super) own: &'a [IpAddr],
    /// As [`SERVER_TIME`].
    pub(super) time: Duration,
}

impl Question<'_> {
    /// Asks for the addresses of both families; at least one at which a server can be.
    pub(super) async fn ask(self) -> Result<Vec<IpAddr>, Failure> {
        let resolver = self.resolver()?;
        let end = Instant::now() + self.time;
        let mut failure = Failure::NoServer;
        for name in self.names()? {
            let other = match self.ask_for(&name, &resolver, end).await {
                Ok(found) => return Ok(found),
                Err(other) => other,
            };
            // The next name may still be known.
            let is_about_name = matches!(
                other,
                Failure::Unknown | Failure::NotFound | Failure::Refused(_)
            );
            failure = failure.max(other);
            if !is_about_name {
                break;
            }
        }
        Err(failure)
    }

    /// The whole names that the name may stand for, in the order in which they are looked up, as by resolv.conf(5).
    fn names(&self) -> Result<Vec<Name>, Failure> {
        let name = Name::from_utf8(self.name).map_err(|error| failure(&error.into()))?;
        let mut whole = name.clone();
        whole.set_fqdn(true);
        if name.is_fqdn() || is_special(&name) {
            return Ok(vec![whole]);
        }
        let suffixes = self
            .search
            .iter()
            .filter_map(|it| Name::from_ascii(it).ok());
        let with = |suffix: Name| name.clone().append_domain(&suffix).ok();
        let mut names: Vec<_> = suffixes.filter_map(with).collect();
        let has_dots = name.num_labels() > 1;
        names.insert(if has_dots { 0 } else { names.len() }, whole);
        Ok(names)
    }

    /// Both families of one name are asked for before the next one: they would otherwise be those of different hosts.
    async fn ask_for(
        &self,
        name: &Name,
        resolver: &Resolver<Sockets>,
        end: Instant,
    ) -> Result<Vec<IpAddr>, Failure> {
        let v6 = pin!(self.addresses(name, resolver, RecordType::AAAA, end));
        let v4 = pin!(self.addresses(name, resolver, RecordType::A, end));
        let answered = select(v6, v4).await;
        let is_v4 = matches!(answered, Either::Right(_));
        let (first, other) = answered.factor_first();
        match first {
            // Servers that ignore questions for IPv6 would otherwise hide the next name.
            Err(Failure::Unknown) if is_v4 => {
                let other = timeout(OTHER_FAMILY, other).await;
                let other = other.unwrap_or(Err(Failure::Unknown));
                other.map_err(|other| Failure::Unknown.max(other))
            }
            Err(failure) => other.await.map_err(|other| failure.max(other)),
            Ok(mut found) => {
                if let Ok(Ok(more)) = timeout(OTHER_FAMILY, other).await {
                    found.extend(more);
                }
                Ok(found)
            }
        }
    }

    async fn addresses(
        &self,
        name: &Name,
        resolver: &Resolver<Sockets>,
        family: RecordType,
        end: Instant,
    ) -> Result<Vec<IpAddr>, Failure> {
        let lookup = timeout_at(end, resolver.lookup(name.clone(), family)).await;
        let lookup = lookup.map_err(|_| Failure::Silence)?;
        let lookup = lookup.map_err(|error| failure(&error))?;
        let records = lookup.answers().iter();
        let found = records.filter_map(|record| record.data.ip_addr());
        let source = |address| source_of(address, self.mark).ok();
        let (usable, useless) = usable(found, |it| Flaw::of_answer(it, self.own, source));
        if let Some(useless) = useless {
            tracing::info!(
                name = self.name,
                "Left out what the name server says: {useless}"
            );
        }
        match (usable.is_empty(), useless) {
            (false, _) => Ok(usable),
            (true, Some(useless)) => Err(Failure::Useless(useless)),
            (true, None) => Err(Failure::NotFound),
        }
    }

    fn resolver(&self) -> Result<Resolver<Sockets>, Failure> {
        let mut server = NameServerConfig::udp_and_tcp(self.server.address);
        server
            .connections
            .iter_mut()
            .for_each(|it| it.port = self.port);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
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

/// Returns whether no server is to hear of a name, so that it is not completed (RFC 6761 §6.3 and §6.4, RFC 7686): the
/// resolver itself answers it.
fn is_special(name: &Name) -> bool {
    let is_nobodys = || usage::ONION.zone_of(name) || usage::INVALID.zone_of(name);
    name.is_localhost() || (name.num_labels() > 1 && is_nobodys())
}

fn failure(error: &NetError) -> Failure {
    match error {
        error if error.is_nx_domain() => Failure::Unknown,
        // Of a server that looks no names up (RFC 2308 §2.2).
        NetError::Dns(DnsError::NoRecordsFound(none))
            if none.ns.is_some() && none.soa.is_none() =>
        {
            Failure::Refused("it refers to other servers".to_owned())
        }
        NetError::Dns(DnsError::NoRecordsFound(_)) => Failure::NotFound,
        NetError::Dns(DnsError::ResponseCode(code)) => Failure::Refused(code.to_string()),
        NetError::Timeout => Failure::Silence,
        // All that is left of the errors of sockets.
        NetError::NoConnections => Failure::Unreachable,
        NetError::Io(error) => Failure::Socket(error.to_string()),
        // Their texts contain what the server has sent.
        NetError::Proto(_) => Failure::Nonsense("malformed"),
        NetError::ForeignClassRecord { .. } | NetError::QueryCaseMismatch => {
            Failure::Nonsense("one to another question")
        }
        NetError::Truncated => Failure::Nonsense("cut short"),
        other => Failure::Refused(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
