//! From a configuration to the state of the host and of the tunnel.
//!
//! Supervisors call it before they change anything, and `convoy check` and `convoy doctor` to foresee what they would do.
//! It reads a configuration ([`reading`]) and looks at the host ([`foresight`]); it changes neither, and talks to no
//! tunnel.

pub mod directs;
pub mod foresight;
pub mod reading;

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use convoy_config::{Config, Host, Interface, KillSwitch, Located, Peer, Table, difference};
use convoy_endpoints::{Outside, has_directs};
use convoy_host::{Desired, Dns};
use convoy_proto::config::DeviceUpdate;
use convoy_uapi::listing::{RunningDevice, RunningPeer};

/// The mark of a kill switch whose tunnel is not up yet: the first that is tried for one.
pub const FIRST_MARK: u32 = 51820;

/// The smallest MTU in bytes that `MTU` may say (RFC 791).
const MIN_MTU: u16 = 68;

/// Returns whether a configuration wants the router to forward the port: without a direct peer, nobody would call
/// there.
pub fn wants_port_map(config: &Config) -> bool {
    let wanted = config.interface.port_map.as_ref();
    wanted.is_some_and(|wanted| wanted.value) && has_directs(config)
}

/// The state of the host that a configuration wants, with the mark that is in use.
pub fn desired(config: &Config, mark: Option<u32>, outside: Outside) -> Desired {
    let it = &config.interface;
    let allowed = config.peers.iter().flat_map(|peer| &peer.allowed_ips);
    Desired {
        addresses: it.addresses.iter().map(|it| it.value).collect(),
        mtu: mtu(config).map(u32::from),
        outer_headers: config.inner_overhead().into(),
        mtu_at_most: None,
        endpoints: outside.endpoints,
        servers: outside
            .resolvers
            .into_iter()
            .chain(outside.servers)
            .collect(),
        streams: outside.streams,
        allowed: allowed.map(|it| it.value).collect(),
        table: match value(it.table.as_ref()) {
            Table::Auto => convoy_host::Table::Auto,
            Table::Off => convoy_host::Table::Off,
            Table::Number(number) => convoy_host::Table::Number(number),
        },
        fwmark: mark,
        excluded: it.excluded_ips.iter().map(|it| it.value).collect(),
        exclude_local: it.exclude_local.is_some(),
        kill_switch: kill_switch(it),
        asks_router: wants_port_map(config),
        meets_peers: has_directs(config),
        dns: Dns {
            servers: it.dns_servers.iter().map(|server| server.value).collect(),
            search: it.dns_domains.iter().map(|it| it.to_string()).collect(),
        },
    }
}

/// The MTU that a configuration sets, or the one that fits the outer tunnel's.
fn mtu(config: &Config) -> Option<u16> {
    let set = |it: &Config| it.interface.mtu.as_ref().map(|mtu| mtu.value);
    let outer = config.via.as_ref().and_then(|via| set(&via.config));
    let fitting = outer.map(|mtu| mtu.saturating_sub(config.inner_overhead()).max(MIN_MTU));
    set(config).or(fitting)
}

/// The kill switch that a configuration wants.
pub fn kill_switch(interface: &Interface) -> Option<convoy_host::KillSwitch> {
    let persistent = match value(interface.kill_switch.as_ref()) {
        KillSwitch::Off => return None,
        KillSwitch::On => false,
        KillSwitch::Persistent => true,
    };
    Some(convoy_host::KillSwitch {
        persistent,
        allow_lan: interface.allow_lan.as_ref().is_some_and(|it| it.value),
    })
}

/// The mark that a configuration asks for; `FwMark = off` asks for none.
pub fn configured_mark(config: &Config) -> Option<u32> {
    let mark = config.interface.fwmark.as_ref();
    mark.map(|mark| mark.value).filter(|mark| *mark != 0)
}

/// Everything, for a tunnel that has just started.
pub fn whole(
    config: &Config,
    mark: Option<u32>,
    resolve: impl FnMut(&Peer) -> Option<SocketAddr>,
) -> DeviceUpdate {
    DeviceUpdate {
        replace_peers: true,
        fwmark: Some(mark.unwrap_or(0)),
        ..difference(&nothing(config), config, resolve)
    }
}

/// Returns what brings a tunnel that runs, under an earlier supervisor, to `config`. Peers keep their sessions and
/// the addresses that they were last heard from.
pub fn adoption(
    config: &Config,
    mark: Option<u32>,
    running: &RunningDevice,
    mut resolve: impl FnMut(&Peer) -> Option<SocketAddr>,
) -> DeviceUpdate {
    let mut old = nothing(config);
    let new = config.peers.iter().map(|it| (it.public_key.value, it));
    let new: HashMap<_, _> = new.collect();
    old.interface.private_key = running.private_key.clone().map(Located::nowhere);
    old.peers = running.peers.iter().map(former).collect();
    for peer in &mut old.peers {
        // A peer that still has an address needs no other, unless a handshake fails.
        if let Some(new) = new.get(&peer.public_key.value)
            && !peer.endpoints.is_empty()
        {
            peer.endpoints.clone_from(&new.endpoints);
        }
    }
    let wanted_port = config.interface.listen_port.as_ref().map(|port| port.value);
    let changed_port = wanted_port.filter(|port| *port != 0 && *port != running.listen_port);
    let wanted_mark = mark.unwrap_or(0);
    DeviceUpdate {
        listen_port: changed_port,
        fwmark: (wanted_mark != running.fwmark).then_some(wanted_mark),
        ..difference(&old, config, &mut resolve)
    }
}

/// A running tunnel's settings as a configuration.
pub fn configuration_of(config: &Config, running: &RunningDevice) -> Config {
    let mut found = nothing(config);
    found.interface.private_key = running.private_key.clone().map(Located::nowhere);
    found.interface.listen_port = Some(Located::nowhere(running.listen_port));
    found.peers = running.peers.iter().map(former).collect();
    found
}

fn former(running: &RunningPeer) -> Peer {
    let endpoint = |address: SocketAddr| {
        Located::nowhere(convoy_config::Endpoint {
            host: Host::Ip(address.ip()),
            port: address.port(),
        })
    };
    let allowed = running.allowed_ips.iter().copied();
    Peer {
        preshared_key: running.preshared_key.clone().map(Located::nowhere),
        allowed_ips: allowed.map(Located::nowhere).collect(),
        endpoints: running.endpoint.into_iter().map(endpoint).collect(),
        persistent_keepalive: Some(Located::nowhere(running.persistent_keepalive)),
        ..Peer::new(Located::nowhere(running.public_key))
    }
}

/// The configuration of a tunnel that has none.
fn nothing(config: &Config) -> Config {
    Config {
        name: config.name.clone(),
        interface: Interface::default(),
        peers: Vec::new(),
        hooks_trusted: Ok(()),
        files: Arc::default(),
        source: None,
        via: None,
    }
}

fn value<T: Copy + Default>(located: Option<&Located<T>>) -> T {
    located.map(|it| it.value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
