use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use convoy_proto::{Node, Planner, config::PublicKey};
use convoy_types::PresharedKey;
use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{Endpoint, Located, Peer};

proptest! {
    #[test]
    fn applying_the_difference_makes_the_new_device(old in config(), new in config()) {
        let mut device = Device::of(&old);
        let update = difference(&old, &new, resolve);
        let unchanged: Vec<_> = old.peers.iter().filter(|peer| new.peers.contains(peer)).collect();
        prop_assert!(!update.replace_peers);
        for peer in unchanged {
            let key = peer.public_key.value;
            prop_assert!(update.peers.iter().all(|change| change.public_key != key));
        }
        let lasting = &Device::of(&old).owners() & &Device::of(&new).owners();
        device.interface(&update);
        for change in &update.peers {
            device.peer(change);
            let without = &lasting - &device.owners();
            prop_assert!(without.is_empty(), "{without:?}");
        }
        prop_assert_eq!(device.known_endpoints(&new), Device::of(&new).known_endpoints(&new));
    }

    #[test]
    fn a_node_takes_the_difference_as_the_model_does(old in config(), new in config()) {
        let mut planner = Planner::default();
        let mut node = Node::default();
        let mut set = |update| node.apply(planner.plan(update), Duration::ZERO);
        set(difference(&crate::fuzz::empty(), &old, resolve));
        set(difference(&old, &new, resolve));
        let snapshot = node.snapshot(Duration::ZERO, SystemTime::now());
        let found = snapshot.peers.iter().map(|peer| (peer.public_key, State {
            preshared_key: peer.preshared_key.as_ref().map(|key| key.0),
            endpoint: peer.endpoint,
            keepalive: peer.persistent_keepalive.as_secs() as u16,
            prefixes: peer.allowed_ips.iter().copied().collect(),
        }));
        let found = Device { peers: found.collect(), ..Device::of(&new) };
        prop_assert_eq!(found.known_endpoints(&new), Device::of(&new).known_endpoints(&new));
    }

    #[test]
    fn nothing_changes_between_equal_configurations(config in config()) {
        let update = difference(&config, &config, resolve);
        prop_assert!(update.peers.is_empty());
        prop_assert!(update.private_key.is_none());
        prop_assert!(update.listen_port.is_none() && update.fwmark.is_none());
    }

    #[test]
    fn a_peer_in_both_is_never_removed_nor_created(old in config(), new in config()) {
        let kept: Vec<_> = old.peers.iter().map(|it| it.public_key.value).collect();
        let kept: Vec<_> = kept.iter().filter(|key| Device::of(&new).peers.contains_key(key)).collect();
        for change in difference(&old, &new, resolve).peers {
            if kept.contains(&&change.public_key) {
                prop_assert!(!change.remove && change.update_only && !change.replace_allowed_ips);
            }
        }
    }
}

/// A device as the UAPI describes it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Device {
    private_key: Option<[u8; 32]>,
    port: u16,
    mark: u32,
    peers: BTreeMap<PublicKey, State>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    preshared_key: Option<[u8; 32]>,
    endpoint: Option<SocketAddr>,
    keepalive: u16,
    prefixes: BTreeSet<Prefix>,
}

impl Device {
    fn of(config: &Config) -> Self {
        let mut device = Self {
            private_key: config.interface.private_key.as_ref().map(|key| key.0),
            port: config
                .interface
                .listen_port
                .as_deref()
                .copied()
                .unwrap_or(0),
            mark: config.interface.fwmark.as_deref().copied().unwrap_or(0),
            ..Self::default()
        };
        for peer in &config.peers {
            let state = State {
                preshared_key: peer.preshared_key.as_ref().map(|key| key.0),
                endpoint: resolve(peer),
                keepalive: peer.persistent_keepalive.as_ref().map_or(0, |it| it.value),
                prefixes: prefixes(peer).collect(),
            };
            device.peers.insert(peer.public_key.value, state);
        }
        device
    }

    fn interface(&mut self, update: &DeviceUpdate) {
        if let Some(key) = &update.private_key {
            self.private_key = key.as_ref().map(|key| key.0);
        }
        self.port = update.listen_port.unwrap_or(self.port);
        self.mark = update.fwmark.unwrap_or(self.mark);
    }

    fn peer(&mut self, change: &PeerUpdate) {
        let key = change.public_key;
        if change.remove {
            self.peers.remove(&key);
            return;
        }
        if change.update_only && !self.peers.contains_key(&key) {
            return;
        }
        let peer = self.peers.entry(key).or_default();
        if let Some(key) = &change.preshared_key {
            peer.preshared_key = key.as_ref().map(|key| key.0);
        }
        peer.endpoint = change.endpoint.or(peer.endpoint);
        peer.keepalive = change.persistent_keepalive.unwrap_or(peer.keepalive);
        if change.replace_allowed_ips {
            peer.prefixes.clear();
        }
        for AllowedIpUpdate { network, remove } in &change.allowed_ips {
            if !remove {
                self.peers.values_mut().for_each(|it| {
                    it.prefixes.remove(network);
                });
            }
            let peer = self.peers.entry(key).or_default();
            match remove {
                true => peer.prefixes.remove(network),
                false => peer.prefixes.insert(*network),
            };
        }
    }

    /// The prefixes that have an owner.
    fn owners(&self) -> BTreeSet<Prefix> {
        self.peers
            .values()
            .flat_map(|peer| peer.prefixes.iter().copied())
            .collect()
    }

    /// Without endpoints that a configuration leaves open: an update cannot remove one.
    fn known_endpoints(&self, config: &Config) -> Self {
        let mut device = self.clone();
        for peer in config.peers.iter().filter(|peer| resolve(peer).is_none()) {
            if let Some(state) = device.peers.get_mut(&peer.public_key.value) {
                state.endpoint = None;
            }
        }
        device
    }
}

fn resolve(peer: &Peer) -> Option<SocketAddr> {
    peer.endpoints.first().and_then(|it| it.address())
}

/// Few keys, prefixes and values, so that two configurations have much in common.
fn config() -> impl Strategy<Value = Config> {
    let interface = (
        option::of(0..2_u8),
        option::of(0..2_u16),
        option::of(0..2_u32),
    );
    (
        interface,
        vec(option::of(peer()), 5),
        vec(option::of(0..5_usize), 6),
    )
        .prop_map(|((key, port, mark), states, owners)| {
            let mut config = crate::fuzz::empty();
            let it = &mut config.interface;
            it.private_key = key.map(|key| Located::nowhere(convoy_types::PrivateKey([key; 32])));
            it.listen_port = port.map(Located::nowhere);
            it.fwmark = mark.map(Located::nowhere);
            for (number, state) in states.into_iter().enumerate() {
                let Some((psk, port, keepalive)) = state else {
                    continue;
                };
                let key = PublicKey([number as u8 + 1; 32]);
                let mut peer = Peer::new(Located::nowhere(key));
                peer.preshared_key = psk.map(|key| Located::nowhere(PresharedKey([key + 1; 32])));
                peer.endpoints.extend(port.map(endpoint));
                peer.persistent_keepalive = keepalive.map(Located::nowhere);
                let own = owners
                    .iter()
                    .enumerate()
                    .filter(|(_, owner)| **owner == Some(number));
                peer.allowed_ips
                    .extend(own.map(|(prefix, _)| Located::nowhere(network(prefix))));
                config.peers.push(peer);
            }
            config
        })
}

fn peer() -> impl Strategy<Value = (Option<u8>, Option<u16>, Option<u16>)> {
    (
        option::of(0..2_u8),
        option::of(0..3_u16),
        option::of(0..2_u16),
    )
}

/// Port 0 stands for a name that is not resolved.
fn endpoint(port: u16) -> Located<Endpoint> {
    let host = match port {
        0 => crate::Host::Name("vpn.example".to_owned()),
        _ => crate::Host::Ip([192, 0, 2, 1].into()),
    };
    Located::nowhere(Endpoint { host, port })
}

fn network(number: usize) -> Prefix {
    Prefix::network_of([10, number as u8, 0, 0].into(), 16).unwrap()
}
