//! Hosts with several addresses: the source address of replies.
//!
//! ```text
//!  left                                       right
//!  ┌────────────────────┐                     ┌─────────────────────────┐
//!  │ veth0 10.9.0.1  ───┼─────────────────────┼── veth0 10.9.0.2, .22   │
//!  │ veth1 10.10.0.1 ───┼─────────────────────┼── veth1 10.10.0.2       │
//!  │ lo    10.99.0.1    │  (two uplinks only) │   default by both       │
//!  └────────────────────┘                     └─────────────────────────┘
//! ```

use std::net::SocketAddr;

use convoy_lab::{Namespace, eventually, wireguard::TunnelOptions, wireguard::Underlay};

use crate::{
    pairing::Program,
    scene::{DEADLINE, Pairing, Scene, for_each_pairing, output_of, wg_dump},
    stats::Stats,
    traffic::{answers, ping},
};

for_each_pairing! {
    fn replies_come_from_the_address_that_was_contacted(pairing: Pairing) {
        if !pairing.both(Program::keeps_its_source) { return }
        let Some(mut scene) = Scene::new(pairing) else { return };
        add_address(&scene.right.namespace, "10.9.0.22/24");
        contact_at(&mut scene, "10.9.0.22:51820");
        ping(&scene.left, scene.right.inner_v4());
        assert_eq!(wg_dump(&scene.left, 1)[2], "10.9.0.22:51820");
    }

    fn replies_over_ipv6_come_from_the_address_that_was_contacted(pairing: Pairing) {
        if !pairing.both(Program::keeps_its_source) { return }
        let options = TunnelOptions { underlay: Underlay::V6, ..TunnelOptions::default() };
        let Some(mut scene) = Scene::with(pairing, &options) else { return };
        add_address(&scene.right.namespace, "fd09::22/64");
        contact_at(&mut scene, "[fd09::22]:51820");
        ping(&scene.left, scene.right.inner_v4());
        assert_eq!(wg_dump(&scene.left, 1)[2], "[fd09::22]:51820");
    }
}

#[test]
fn replies_come_from_the_address_that_was_contacted_however_fast_that_changes() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    let hosts = 22..42;
    for host in hosts.clone() {
        add_address(&right.namespace, &format!("10.9.0.{host}/24"));
    }
    ping(left, right.inner_v4());
    let (interface, key) = (left.daemon.interface(), &wg_dump(left, 1)[0]);
    for host in hosts {
        let endpoint = format!("10.9.0.{host}:51820");
        let change = ["set", interface, "peer", key, "endpoint", &endpoint];
        output_of(&left.namespace, "wg", &change);
        ping(left, right.inner_v4());
        assert_eq!(wg_dump(left, 1)[2], endpoint);
    }
    assert_eq!(handshakes(&scene), 1);
}

#[test]
fn an_address_that_vanishes_does_not_stop_the_tunnel() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    add_address(&scene.right.namespace, "10.9.0.22/24");
    contact_at(&mut scene, "10.9.0.22:51820");
    ping(&scene.left, scene.right.inner_v4());
    let link = scene.right.namespace.link();
    link.remove_address("veth0", "10.9.0.22/24").unwrap();
    ping(&scene.right, scene.left.inner_v4());
    assert_eq!(wg_dump(&scene.left, 1)[2], "10.9.0.2:51820");
    assert_eq!(handshakes(&scene), 1, "the session must survive");
}

#[test]
fn a_host_is_reachable_by_an_uplink_that_its_default_route_does_not_use() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    two_uplinks(&scene);
    contact_at(&mut scene, "10.10.0.2:51820");
    ping(&scene.left, scene.right.inner_v4());
    assert_eq!(handshakes(&scene), 1);
}

#[test]
fn a_tunnel_follows_route_changes_without_a_new_handshake() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    two_uplinks(&scene);
    contact_at(&mut scene, "10.9.0.2:51820");
    ping(&scene.left, scene.right.inner_v4());
    let ip = |arguments: &[&str]| output_of(&scene.right.namespace, "ip", arguments);
    let changes: [&[&str]; 3] = [
        &["route", "delete", "default", "via", "10.9.0.1"],
        &["route", "add", "default", "via", "10.9.0.1", "metric", "50"],
        &["link", "set", "veth0", "down"],
    ];
    for change in changes {
        ip(change);
        let is_answered = || answers(&scene.right, scene.left.inner_v4()).then_some(());
        assert!(eventually(DEADLINE, is_answered).is_some(), "{change:?}");
        assert_eq!(handshakes(&scene), 1, "{change:?}");
    }
}

/// Adds a second veth. The left end sends from an address on neither, and drops packets that arrive
/// on the wrong one.
fn two_uplinks(scene: &Scene) {
    let (left, right) = (&scene.left.namespace, &scene.right.namespace);
    let lab = scene.lab();
    let (near, far) = (["10.10.0.1/24"], ["10.10.0.2/24"]);
    lab.veth(left, "veth1", &near, right, "veth1", &far, 1_500)
        .unwrap();
    left.link().add_address("lo", "10.99.0.1/32").unwrap();
    for (network, cable) in [("10.9.0.0/24", "veth0"), ("10.10.0.0/24", "veth1")] {
        let route = [
            "route",
            "replace",
            network,
            "dev",
            cable,
            "src",
            "10.99.0.1",
        ];
        output_of(left, "ip", &route);
        let strict = format!("net.ipv4.conf.{cable}.rp_filter=1");
        output_of(left, "sysctl", &["-w", &strict]);
    }
    for (gateway, metric) in [("10.9.0.1", "100"), ("10.10.0.1", "200")] {
        let route = ["route", "add", "default", "via", gateway, "metric", metric];
        output_of(right, "ip", &route);
    }
}

fn add_address(namespace: &Namespace, address: &str) {
    namespace.link().add_address("veth0", address).unwrap();
}

pub(crate) fn contact_at(scene: &mut Scene, endpoint: &str) {
    let left = &mut scene.left;
    left.config.peers[0].endpoint = Some(endpoint.parse::<SocketAddr>().unwrap());
    left.daemon.configure(&left.config).unwrap();
}

fn handshakes(scene: &Scene) -> u64 {
    Stats::of(&scene.right).handshakes()
}
