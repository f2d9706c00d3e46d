//! Questions to the host's resolver.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    Hosts,
    net::{DnsError, NetError},
    proto::rr::{Name, RecordType},
};

use super::Answer;
use crate::{network::names::system, own::Own};

/// The name that has IPv4 addresses alone (RFC 7050, section 8.1).
const NAME: &str = "ipv4only.arpa.";
/// Most addresses of an answer that count.
const MAX_ADDRESSES: usize = 64;

/// Asks for the addresses that the resolver makes up.
pub(super) async fn ask(file: PathBuf) -> io::Result<Answer> {
    let (config, options) = system::configuration(&file);
    let servers = system::servers(&config, options, &Arc::new(Hosts::default()));
    let servers = servers.map_err(io::Error::other)?;
    let name = Name::from_ascii(NAME).map_err(io::Error::other)?;
    let found = match servers.lookup(name, RecordType::AAAA).await {
        Ok(found) => found,
        // There is no translator.
        Err(NetError::Dns(DnsError::NoRecordsFound(_))) => {
            return Ok(Answer {
                addresses: Vec::new(),
                life: Duration::ZERO,
            });
        }
        Err(error) => return Err(io::Error::other(error)),
    };
    let records = found.answers().iter().take(MAX_ADDRESSES);
    let life = records.clone().map(|it| it.ttl).min().unwrap_or(0);
    let addresses = records.filter_map(|it| match it.data.ip_addr() {
        Some(IpAddr::V6(address)) => Some(address),
        _ => None,
    });
    let addresses: Vec<Ipv6Addr> = addresses.collect();
    Ok(Answer {
        addresses,
        life: Duration::from_secs(life.into()),
    })
}

/// A number that changes with the resolver's file and the host's addresses.
pub(super) fn version(file: &Path, own: &Own) -> u64 {
    let mut hasher = DefaultHasher::new();
    (system::stamp(file), own.version()).hash(&mut hasher);
    hasher.finish()
}
