//! Large configurations are applied, listed and stopped in slices, each small enough for a tick.

use std::{
    net::Ipv4Addr,
    time::{Duration, SystemTime},
};

use crate::common::{Host, SECOND, allow};
use convoy_proto::config::{DeviceUpdate, PeerUpdate, PublicKey};

const NOW: Duration = SECOND.saturating_mul(1_000);
/// The allowed IPs of one peer.
const MANY: u32 = 5_000;
/// Most allowed IPs that a slice may change or list.
const PER_SLICE: usize = 768;

#[test]
fn a_large_configuration_is_applied_listed_and_stopped_in_slices() {
    let prefixes = (0..2_000_u32).map(|n| allow(Ipv4Addr::from(n).into(), 32));
    let mut busy = PeerUpdate::new(PublicKey([255; 32]));
    busy.allowed_ips = prefixes.collect();
    let peers = (1..=200).map(|n| PeerUpdate::new(PublicKey([n; 32])));
    let update = DeviceUpdate {
        replace_peers: true,
        peers: peers.chain([busy]).collect(),
        ..DeviceUpdate::default()
    };
    let mut host = Host::new(1);
    for _ in 0..2 {
        let mut plan = host.planner.plan(update.clone());
        let slices = (1..).find(|_| host.node.apply_slice(&mut plan, NOW));
        assert!(slices >= Some(7), "{slices:?}");
    }
    let mut listing = host.node.begin_snapshot(NOW, SystemTime::UNIX_EPOCH);
    let slices = (1..).find(|_| host.node.snapshot_slice(&mut listing));
    assert!(slices >= Some(4), "{slices:?}");
    let listed = listing.into_snapshot().peers;
    assert_eq!(listed.len(), update.peers.len());
    for (peer, update) in listed.iter().zip(&update.peers) {
        assert_eq!(peer.public_key, update.public_key);
        let prefixes = update.allowed_ips.iter().map(|change| change.network);
        assert!(prefixes.eq(peer.allowed_ips.iter().copied()));
    }
    let mut change = host.node.begin_link(false);
    let slices = (1..).find(|_| host.node.link_slice(&mut change, NOW));
    assert!(slices >= Some(4), "{slices:?}");
}

#[test]
fn a_peer_with_very_many_allowed_ips_is_listed_in_slices() {
    let mut host = with_busy_peer();
    let mut listing = host.node.begin_snapshot(NOW, SystemTime::UNIX_EPOCH);
    let slices = (1..).find(|_| host.node.snapshot_slice(&mut listing));
    let slices = slices.unwrap();
    assert!(slices >= MANY as usize / PER_SLICE, "{slices} slices");
    let [peer] = &listing.into_snapshot().peers[..] else {
        panic!("one peer");
    };
    let added = busy().allowed_ips.into_iter().map(|change| change.network);
    assert!(added.eq(peer.allowed_ips.iter().copied()));
}

#[test]
fn a_peer_with_very_many_allowed_ips_is_removed_in_slices() {
    let removal = PeerUpdate {
        remove: true,
        ..PeerUpdate::new(busy().public_key)
    };
    for update in [
        of_peers(vec![removal]),
        DeviceUpdate {
            replace_peers: true,
            ..DeviceUpdate::default()
        },
    ] {
        let mut host = with_busy_peer();
        assert_slices(&mut host, update);
        assert!(host.snapshot(NOW).peers.is_empty());
    }
}

#[test]
fn a_peer_with_very_many_allowed_ips_that_turns_out_to_be_the_device_is_removed_in_slices() {
    let mut host = Host::new(1);
    let other = Host::new(9);
    let own = PeerUpdate {
        public_key: other.public_key(),
        ..busy()
    };
    host.update(of_peers(vec![own]), NOW);
    let update = DeviceUpdate {
        private_key: Some(Some(other.key.clone())),
        ..DeviceUpdate::default()
    };
    assert_slices(&mut host, update);
    assert!(host.snapshot(NOW).peers.is_empty());
}

#[test]
fn very_many_allowed_ips_are_replaced_in_slices() {
    let mut host = with_busy_peer();
    let network = allow([192, 0, 2, 0].into(), 24);
    let replacement = PeerUpdate {
        replace_allowed_ips: true,
        allowed_ips: vec![network],
        ..PeerUpdate::new(busy().public_key)
    };
    assert_slices(&mut host, of_peers(vec![replacement]));
    let peers = host.snapshot(NOW).peers;
    assert_eq!(peers[0].allowed_ips, [network.network]);
}

/// A peer loses no packet while its few allowed IPs are replaced, however much else changes.
#[test]
fn a_few_allowed_ips_are_replaced_within_one_slice() {
    let mut host = Host::new(1);
    let peers = (1..=255).map(|n| PeerUpdate {
        replace_allowed_ips: true,
        allowed_ips: vec![allow([10, 0, 0, n].into(), 32)],
        ..PeerUpdate::new(PublicKey([n; 32]))
    });
    let update = of_peers(peers.collect());
    host.update(update.clone(), NOW);
    let mut plan = host.planner.plan(update);
    while !host.node.apply_slice(&mut plan, NOW) {
        assert_eq!(listed(&mut host), 255);
    }
}

/// Asserts that each slice of the update changes few allowed IPs.
fn assert_slices(host: &mut Host, update: DeviceUpdate) {
    let mut plan = host.planner.plan(update);
    let mut is_done = false;
    let mut before = listed(host);
    while !is_done {
        is_done = host.node.apply_slice(&mut plan, NOW);
        let after = listed(host);
        let changed = before.abs_diff(after);
        assert!(changed <= PER_SLICE, "{changed} in one slice");
        before = after;
    }
}

/// The number of allowed IPs of all peers.
fn listed(host: &mut Host) -> usize {
    let peers = host.snapshot(NOW).peers;
    peers.iter().map(|peer| peer.allowed_ips.len()).sum()
}

fn with_busy_peer() -> Host {
    let mut host = Host::new(1);
    host.update(of_peers(vec![busy()]), NOW);
    host
}

fn busy() -> PeerUpdate {
    // In an order that a sorted map does not keep by itself.
    let prefixes = (0..MANY).map(|n| allow(Ipv4Addr::from(n * 3_001 % MANY).into(), 32));
    PeerUpdate {
        allowed_ips: prefixes.collect(),
        ..PeerUpdate::new(PublicKey([255; 32]))
    }
}

fn of_peers(peers: Vec<PeerUpdate>) -> DeviceUpdate {
    DeviceUpdate {
        peers,
        ..DeviceUpdate::default()
    }
}
