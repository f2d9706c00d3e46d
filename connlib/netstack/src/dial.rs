//! Connects to a target: its name is resolved each time, and its addresses are tried in order.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use nix::errno::Errno;
use tokio::time::timeout;

use crate::{
    counters::Refusal,
    network::{Network, Stream},
};

/// How long a name may take to be resolved.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);
/// How long one address may take to answer.
const ADDRESS_LIMIT: Duration = Duration::from_secs(10);
/// How long all addresses together may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Where a connection or flow leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Not a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected host:port, with an IPv6 address in brackets")]
pub struct InvalidTarget;

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidTarget)?;
        let port = port.parse().map_err(|_| InvalidTarget)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => address
                .parse::<Ipv6Addr>()
                .map_err(|_| InvalidTarget)?
                .to_string(),
            None => host.to_owned(),
        };
        let is_host = is_name(&host) || host.parse::<Ipv6Addr>().is_ok();
        let is_valid = is_host && port != 0 && (bracketed.is_some() || !host.contains(':'));
        is_valid.then_some(Self { host, port }).ok_or(InvalidTarget)
    }
}

/// Whether a resolver can be asked for it; also true of an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=253).contains(&host.len()) && host.chars().all(is_allowed)
}

/// Connects to a target.
pub(crate) async fn dial(network: &dyn Network, target: &Target) -> Result<Stream, Refusal> {
    let addresses = resolve(network, target).await?;
    let attempts = async {
        let mut refusal = Refusal::UnknownName;
        for address in addresses {
            match timeout(ADDRESS_LIMIT, network.connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => refusal = reason(&error),
                Err(_) => refusal = Refusal::TimedOut,
            }
        }
        Err(refusal)
    };
    timeout(LIMIT, attempts)
        .await
        .unwrap_or(Err(Refusal::TimedOut))
}

/// The addresses of a target; at least one.
pub(crate) async fn resolve(
    network: &dyn Network,
    target: &Target,
) -> Result<Vec<SocketAddr>, Refusal> {
    if let Ok(address) = target.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, target.port)]);
    }
    let lookup = network.resolve(&target.host, target.port);
    match timeout(LOOKUP_LIMIT, lookup).await {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Err(error)) if is_short_of_descriptors(&error) => Err(Refusal::NoDescriptors),
        Ok(_) => Err(Refusal::UnknownName),
        Err(_) => Err(Refusal::TimedOut),
    }
}

/// Why the kernel refused a connection.
pub(crate) fn reason(error: &io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Refusal::TargetRefused,
        ErrorKind::TimedOut => Refusal::TimedOut,
        // Of connect(2), and of bind(2) to any port.
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => Refusal::NoSource,
        _ if is_short_of_descriptors(error) => Refusal::NoDescriptors,
        _ => Refusal::Unreachable,
    }
}

/// Whether a call failed because this process or the system has no descriptors or memory for sockets left.
pub(crate) fn is_short_of_descriptors(error: &io::Error) -> bool {
    let short = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| short.contains(&Errno::from_raw(code)))
}
