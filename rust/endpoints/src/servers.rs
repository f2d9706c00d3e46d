//! STUN and TURN servers of a configuration.

use std::{net::SocketAddr, sync::Arc};

use convoy_carrier::Roots;
use convoy_config::{Config, Endpoint, Host, Turn};
use convoy_proto::config::{Authorities, Relay, RelayTransport};
use tracing::warn;

/// Returns whether any peer of a file is to be reached by a direct path.
pub fn has_directs(config: &Config) -> bool {
    config.peers.iter().any(|peer| !peer.directs.is_empty())
}

/// Returns the servers of a file that are no peers: STUN and TURN.
pub(crate) fn servers_of(config: &Config) -> impl Iterator<Item = &Endpoint> {
    stun_of(config).chain(turn_servers_of(config))
}

/// Returns the TURN servers of a file.
pub(crate) fn turn_servers_of(config: &Config) -> impl Iterator<Item = &Endpoint> {
    turns_of(config).map(|it| &it.server)
}

/// Returns the STUN servers of a file; without a direct peer, they are not asked.
pub(crate) fn stun_of(config: &Config) -> impl Iterator<Item = &Endpoint> {
    let servers = config.interface.stun.iter().map(|it| &it.value);
    servers.filter(|_| has_directs(config))
}

/// Returns the TURN servers of a file to which streams are opened.
pub(crate) fn streams_of(config: &Config) -> impl Iterator<Item = &Endpoint> {
    let streams = turns_of(config).filter(|it| it.transport != RelayTransport::Udp);
    streams.map(|it| &it.server)
}

/// Returns the TURN servers of a file, each at the addresses that `resolve` knows. The `authorities` of this system vouch
/// for those that name none.
pub(crate) fn relays_of(
    config: &Config,
    resolve: impl Fn(&Endpoint) -> Vec<SocketAddr>,
    authorities: impl Fn() -> Authorities,
) -> Vec<Relay> {
    let with_password = turns_of(config).filter_map(|turn| Some((turn, turn.password.as_ref()?)));
    let relays = with_password.flat_map(|(turn, password)| {
        let authorities = match (turn.transport, &turn.authorities) {
            (RelayTransport::Tls, Some(pem)) => authorities_of(pem),
            (RelayTransport::Tls, None) => authorities(),
            (RelayTransport::Udp | RelayTransport::Tcp, _) => Authorities::default(),
        };
        let addresses = resolve(&turn.server).into_iter();
        addresses.map(move |server| Relay {
            host: match &turn.server.host {
                Host::Name(name) => name.clone(),
                Host::Ip(address) => address.to_string(),
                Host::Zoned(address, _) => address.to_string(),
            },
            server,
            transport: turn.transport,
            user: turn.user.clone(),
            password: password.clone(),
            authorities: authorities.clone(),
        })
    });
    relays.collect()
}

/// Returns the TURN servers that datagrams on the network go by: of the outer tunnel, if this one goes through one.
fn turns_of(config: &Config) -> impl Iterator<Item = &Turn> {
    let outer = config.via.as_ref().map(|via| &via.config);
    let outermost = outer.unwrap_or(config);
    outermost.interface.turns.iter().map(|it| &it.value)
}

/// Returns the authorities of a `CaFile`, which was checked when it was read.
fn authorities_of(pem: &[u8]) -> Authorities {
    match Roots::from_pem(pem) {
        Ok(roots) => Authorities(Arc::from(roots.to_bytes())),
        Err(error) => {
            warn!("no authority of `CaFile` is trusted: {error}");
            Authorities::default()
        }
    }
}
