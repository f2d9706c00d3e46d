//! The changes from one configuration to the next, which leave unchanged peers alone.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
};

use convoy_types::{AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix, PresharedKey};

use crate::config::{Config, Interface, Peer};

/// The changes that take a device from `old` to `new`; applied as a whole by
/// `Planner` and `Node` of `convoy-proto`.
///
/// Unchanged peers are not in it, so their sessions last. No prefix that both
/// configurations have is without an owner in between, even if it moves from one peer to another:
/// first everything is added, then the remaining prefixes are removed, then peers.
///
/// `resolve` supplies the address of an endpoint, such as [`Endpoint::address`](crate::Endpoint::address) does; without one, the
/// peer's endpoint stays as it is. It is asked for new peers, and for those whose list of endpoints
/// has changed. A `ListenPort` or `FwMark` that is gone is set to 0.
#[must_use]
pub fn difference(
    old: &Config,
    new: &Config,
    mut resolve: impl FnMut(&Peer) -> Option<SocketAddr>,
) -> DeviceUpdate {
    let before: HashMap<_, _> = old
        .peers
        .iter()
        .map(|it| (it.public_key.value, it))
        .collect();
    let after: HashSet<_> = new.peers.iter().map(|it| it.public_key.value).collect();
    let claimed = new.peers.iter().flat_map(prefixes).collect();

    let mut update = DeviceUpdate::default();
    interface(&old.interface, &new.interface, &mut update);
    for peer in &new.peers {
        let change = match before.get(&peer.public_key.value) {
            Some(former) => changed(former, peer, &mut resolve),
            None => Some(added(peer, &mut resolve)),
        };
        update.peers.extend(change);
    }
    for former in &old.peers {
        let key = former.public_key.value;
        let change = match after.contains(&key) {
            true => released(former, &claimed),
            false => Some(PeerUpdate {
                remove: true,
                ..PeerUpdate::new(key)
            }),
        };
        update.peers.extend(change);
    }
    update
}

fn interface(old: &Interface, new: &Interface, update: &mut DeviceUpdate) {
    if old.private_key != new.private_key {
        update.private_key = Some(new.private_key.as_ref().map(|key| key.value.clone()));
    }
    let port = |it: &Interface| it.listen_port.as_ref().map_or(0, |port| port.value);
    if port(old) != port(new) {
        update.listen_port = Some(port(new));
    }
    let mark = |it: &Interface| it.fwmark.as_ref().map_or(0, |mark| mark.value);
    if mark(old) != mark(new) {
        update.fwmark = Some(mark(new));
    }
}

fn added(peer: &Peer, resolve: &mut impl FnMut(&Peer) -> Option<SocketAddr>) -> PeerUpdate {
    PeerUpdate {
        preshared_key: Some(preshared_key(peer)),
        endpoint: resolve(peer),
        persistent_keepalive: Some(keepalive(peer)),
        replace_allowed_ips: true,
        allowed_ips: prefixes(peer)
            .map(|network| change(network, false))
            .collect(),
        ..PeerUpdate::new(peer.public_key.value)
    }
}

/// The update of a peer without its losses; `None` if there is none.
fn changed(
    old: &Peer,
    new: &Peer,
    resolve: &mut impl FnMut(&Peer) -> Option<SocketAddr>,
) -> Option<PeerUpdate> {
    let had: HashSet<_> = prefixes(old).collect();
    let gained = prefixes(new).filter(|network| !had.contains(network));
    let update = PeerUpdate {
        update_only: true,
        preshared_key: (old.preshared_key != new.preshared_key).then(|| preshared_key(new)),
        endpoint: match old.endpoints == new.endpoints {
            true => None,
            false => resolve(new),
        },
        persistent_keepalive: (keepalive(old) != keepalive(new)).then(|| keepalive(new)),
        allowed_ips: gained.map(|network| change(network, false)).collect(),
        ..PeerUpdate::new(new.public_key.value)
    };
    let is_empty = update.preshared_key.is_none()
        && update.endpoint.is_none()
        && update.persistent_keepalive.is_none()
        && update.allowed_ips.is_empty();
    (!is_empty).then_some(update)
}

/// Removes prefixes from a peer, unless another peer gains them: adding a prefix there removes it here.
fn released(old: &Peer, claimed: &HashSet<Prefix>) -> Option<PeerUpdate> {
    let lost = prefixes(old).filter(|network| !claimed.contains(network));
    let lost: Vec<_> = lost.map(|network| change(network, true)).collect();
    (!lost.is_empty()).then(|| PeerUpdate {
        update_only: true,
        allowed_ips: lost,
        ..PeerUpdate::new(old.public_key.value)
    })
}

fn prefixes(peer: &Peer) -> impl Iterator<Item = Prefix> + '_ {
    peer.allowed_ips.iter().map(|it| it.value)
}

fn change(network: Prefix, remove: bool) -> AllowedIpUpdate {
    AllowedIpUpdate { network, remove }
}

fn preshared_key(peer: &Peer) -> Option<PresharedKey> {
    peer.preshared_key.as_ref().map(|key| key.value.clone())
}

fn keepalive(peer: &Peer) -> u16 {
    peer.persistent_keepalive.as_ref().map_or(0, |it| it.value)
}

#[cfg(test)]
mod tests;
