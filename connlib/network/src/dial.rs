//! Connects to a target: its name is resolved each time, and its addresses are tried in order.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use nix::errno::Errno;
use tokio::time::timeout;

use crate::{
    counters::Refusal,
    network::{Network, Stream},
};

/// Time limit for resolving a name.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for an answer of one address.
const ADDRESS_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for all addresses together.
const LIMIT: Duration = Duration::from_secs(30);
/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 16;
/// Time after which the next address is tried alongside a slow one.
const STAGGER: Duration = Duration::from_millis(250);

/// Target of a connection or flow.
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

/// Returns whether a resolver can be asked for it; also true of an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=253).contains(&host.len()) && host.chars().all(is_allowed)
}

/// Connects to a target.
pub async fn dial(network: &dyn Network, target: &Target) -> Result<Stream, Refusal> {
    let addresses = permitted(network, resolve(network, target).await?).await?;
    if let [only] = addresses[..] {
        // Its own limit is the shorter one, and each timer costs a wake-up.
        return attempt(network, only).await;
    }
    let attempts = first_of(network, addresses);
    timeout(LIMIT, attempts)
        .await
        .unwrap_or(Err(Refusal::TimedOut))
}

/// The addresses that may be reached; at least one.
async fn permitted(
    network: &dyn Network,
    mut addresses: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, Refusal> {
    settle(network, &addresses).await;
    let mut refusal = Refusal::UnknownName;
    addresses.retain(|address| match network.check(*address) {
        Ok(()) => true,
        Err(reason) => {
            refusal = reason;
            false
        }
    });
    match addresses.is_empty() {
        true => Err(refusal),
        false => Ok(addresses),
    }
}

/// Waits until the network can tell which of these addresses may be reached.
pub async fn settle(network: &dyn Network, addresses: &[SocketAddr]) {
    for address in addresses {
        if let Some(discovery) = network.discover(*address) {
            discovery.await;
        }
    }
}

/// Connects to the first address that answers. The next one is tried as well when one has failed or takes long
/// (RFC 8305 §5).
async fn first_of(
    network: &dyn Network,
    mut addresses: Vec<SocketAddr>,
) -> Result<Stream, Refusal> {
    addresses.truncate(MOST_ADDRESSES);
    let attempt = |address| attempt(network, address);
    let mut refusal = Refusal::UnknownName;
    let mut addresses = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.extend(addresses.next().map(attempt));
        loop {
            let more = !addresses.as_slice().is_empty();
            let next = async {
                match more {
                    true => timeout(STAGGER, attempts.next()).await.ok(),
                    false => Some(attempts.next().await),
                }
            };
            match next.await {
                Some(Some(Ok(stream))) => return Ok(stream),
                Some(Some(Err(failed))) => {
                    refusal = failed;
                    if more {
                        break;
                    }
                }
                // All have failed, or the latest takes long.
                Some(None) if !more => return Err(refusal),
                Some(None) | None => break,
            }
        }
    }
}

async fn attempt(network: &dyn Network, address: SocketAddr) -> Result<Stream, Refusal> {
    match timeout(ADDRESS_LIMIT, network.connect(address)).await {
        Ok(outcome) => outcome.map_err(|error| reason(&error)),
        Err(_) => Err(Refusal::TimedOut),
    }
}

/// The addresses of a target; at least one. An IPv4 address that is written as one of IPv6 (RFC 4291 §2.5.5.2) is that of
/// IPv4.
pub async fn resolve(network: &dyn Network, target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
    if let Ok(address) = target.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address.to_canonical(), target.port)]);
    }
    let lookup = network.resolve(&target.host, target.port);
    match timeout(LOOKUP_LIMIT, lookup).await {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Err(error)) if is_short_of_descriptors(&error) => Err(Refusal::NoDescriptors),
        Ok(_) => Err(Refusal::UnknownName),
        Err(_) => Err(Refusal::TimedOut),
    }
}

/// Returns the reason why the kernel refused a connection.
pub fn reason(error: &io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Refusal::TargetRefused,
        ErrorKind::TimedOut => Refusal::TimedOut,
        ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => Refusal::NoRoute,
        // EACCES and EPERM.
        ErrorKind::PermissionDenied => Refusal::Prohibited,
        // Of connect(2), and of bind(2) to any port.
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => Refusal::NoSource,
        _ if is_short_of_descriptors(error) => Refusal::NoDescriptors,
        _ => Refusal::Unreachable,
    }
}

/// Returns whether a call failed because this process or the system has no descriptors or memory for sockets left.
pub(crate) fn is_short_of_descriptors(error: &io::Error) -> bool {
    let short = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| short.contains(&Errno::from_raw(code)))
}

#[cfg(test)]
mod tests;
