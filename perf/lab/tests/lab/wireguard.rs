//! A tunnel between two daemons, with wireguard-go for both: the lab tested without ours.

use std::net::SocketAddr;

use convoy_lab::wireguard::{Daemon, Implementation, Tunnel, TunnelOptions, Underlay};
use convoy_lab::{Lab, require_lab, require_programs, require_root_lab};

use crate::talk;

#[test]
fn a_tunnel_carries_tcp_over_either_underlay() {
    for underlay in [Underlay::V4, Underlay::V6] {
        let options = TunnelOptions {
            underlay,
            ..TunnelOptions::default()
        };
        let test = "a_tunnel_carries_tcp_over_either_underlay";
        let Some((tunnel, _lab)) = tunnel(test, &options) else {
            return;
        };
        for ip in [tunnel.right.inner_v4(), tunnel.right.inner_v6()] {
            let address = SocketAddr::new(ip, 7_000);
            talk(&tunnel.left.namespace, &tunnel.right.namespace, address);
        }
        let listing = tunnel.left.daemon.request("get=1\n\n").unwrap();
        assert!(listing.ends_with("errno=0\n\n"), "{listing}");
    }
}

#[test]
fn a_tunnel_has_the_mtu_and_the_idle_peers_that_are_asked_for() {
    let options = TunnelOptions {
        idle_peers: 20,
        ..TunnelOptions::of_mtu(8_920)
    };
    let Some((tunnel, _lab)) = tunnel("a_tunnel_has_the_mtu_and_the_idle_peers", &options) else {
        return;
    };
    for end in [&tunnel.left, &tunnel.right] {
        let link = end.namespace.link();
        let mtus = ["wg0", "veth0"].map(|name| link.mtu(name).unwrap());
        assert_eq!(mtus, [8_920, 9_000]);
        let listing = end.daemon.request("get=1\n\n").unwrap();
        let count = |key: &str| listing.matches(key).count();
        assert_eq!((count("\npublic_key="), count("\nallowed_ip=")), (21, 42));
    }
}

#[test]
fn a_daemon_that_ends_at_once_is_reported_with_its_output() {
    if !require_lab("a_daemon_that_ends_at_once_is_reported_with_its_output") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let refused = Daemon::start(&namespace, &Implementation::new("ls"), "/no");
    let message = refused.err().unwrap().to_string();
    assert!(message.contains("ended with exit status: 2"), "{message}");
    let output = "'/no': No such file or directory";
    assert!(message.contains(output), "{message}");
}

fn tunnel(test: &str, options: &TunnelOptions) -> Option<(Tunnel, Lab)> {
    if !require_root_lab(test) || !require_programs(test, &["wireguard-go"]) {
        return None;
    }
    let lab = Lab::new().unwrap();
    let daemon = Implementation::new("wireguard-go");
    let tunnel = Tunnel::new(&lab, &daemon, &daemon, options).unwrap();
    Some((tunnel, lab))
}
