//! The changes from one configuration to the next, which leave unchanged peers alone.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
};

use convoy_types::{AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix};

use crate::{
    config::{Config, Peer},
    key::Change,
    keys,
};

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
    for key in keys::all() {
        if let Change::Interface(change) = key.change {
            change(&old.interface, &new.interface, &mut update);
        }
    }
    for peer in &new.peers {
        let former = before.get(&peer.public_key.value).copied();
        update.peers.extend(gained(former, peer, &mut resolve));
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

/// Returns the update of a peer without its losses; `None` if there is none. Without a former peer, all of it.
fn gained(
    old: Option<&Peer>,
    new: &Peer,
    resolve: &mut impl FnMut(&Peer) -> Option<SocketAddr>,
) -> Option<PeerUpdate> {
    let mut update = PeerUpdate::new(new.public_key.value);
    update.update_only = old.is_some();
    update.replace_allowed_ips = old.is_none();
    for key in keys::all() {
        if let Change::Peer(change) = key.change {
            change(old, new, &mut update);
        }
    }
    if old.is_none_or(|old| old.endpoints != new.endpoints) {
        update.endpoint = resolve(new);
    }
    let is_empty = update.preshared_key.is_none()
        && update.endpoint.is_none()
        && update.persistent_keepalive.is_none()
        && update.allowed_ips.is_empty();
    (old.is_none() || !is_empty).then_some(update)
}

/// Removes prefixes from a peer, unless another peer gains them: adding a prefix there removes it here.
fn released(old: &Peer, claimed: &HashSet<Prefix>) -> Option<PeerUpdate> {
    let lost = prefixes(old).filter(|network| !claimed.contains(network));
    let lost: Vec<_> = lost.map(removal).collect();
    (!lost.is_empty()).then(|| PeerUpdate {
        update_only: true,
        allowed_ips: lost,
        ..PeerUpdate::new(old.public_key.value)
    })
}

fn prefixes(peer: &Peer) -> impl Iterator<Item = Prefix> + '_ {
    peer.allowed_ips.iter().map(|it| it.value)
}

fn removal(network: Prefix) -> AllowedIpUpdate {
    AllowedIpUpdate {
        network,
        remove: true,
    }
}

#[cfg(test)]
mod tests;
