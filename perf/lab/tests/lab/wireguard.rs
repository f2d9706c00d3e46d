//! A tunnel between two wireguard-go daemons: tests the lab without Convoy.

use std::net::SocketAddr;

use convoy_lab::wireguard::{Daemon, Implementation, Tunnel, TunnelOptions, Underlay};
use convoy_lab::{Lab, require_lab, require_programs, require_root_lab};

use crate::talk;

#[test]
fn a_tunnel_has_the_underlay_the_mtu_and_the_idle_peers_that_are_asked_for() {
    let test = "a_tunnel_has_the_underlay_the_mtu_and_the_idle_peers";
    if !require_root_lab(test) || !require_programs(test, &["wireguard-go"]) {
        return;
    }
    let daemon = Implementation::new("wireguard-go");
    for underlay in [Underlay::V4, Underlay::V6] {
        let options = TunnelOptions {
            underlay,
            idle_peers: 20,
            ..TunnelOptions::of_mtu(8_920)
        };
        let lab = Lab::new().unwrap();
        let tunnel = Tunnel::new(&lab, &daemon, &daemon, &options).unwrap();
        for ip in [tunnel.right.inner_v4(), tunnel.right.inner_v6()] {
            let address = SocketAddr::new(ip, 7_000);
            talk(&tunnel.left.namespace, &tunnel.right.namespace, address);
        }
        let listing = tunnel.left.daemon.request("get=1\n\n").unwrap();
        assert!(listing.ends_with("errno=0\n\n"), "{listing}");
        let count = |key: &str| listing.matches(key).count();
        assert_eq!((count("\npublic_key="), count("\nallowed_ip=")), (21, 42));
        let shown = tunnel.left.namespace.command("ip").arg("link").output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        assert!(shown.contains("mtu 8920") && shown.contains("mtu 9000"));
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
