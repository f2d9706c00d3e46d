//! A tunnel between two daemons, with wireguard-go for both: the lab tested without ours.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use convoy_lab::{
    Lab, require_lab, require_programs, require_root_lab,
    wireguard::{Implementation, Tunnel, TunnelOptions, Underlay},
};

#[test]
fn a_tunnel_carries_tcp_over_either_underlay() {
    let test = "a_tunnel_carries_tcp_over_either_underlay";
    if !require_root_lab(test) || !require_programs(test, &["wireguard-go"]) {
        return;
    }
    let lab = Lab::new().unwrap();
    let daemon = Implementation::new("wireguard-go");
    for underlay in [Underlay::V4, Underlay::V6] {
        let options = TunnelOptions {
            underlay,
            ..TunnelOptions::default()
        };
        let tunnel = Tunnel::new(&lab, &daemon, &daemon, &options).unwrap();
        for ip in [tunnel.right.inner_v4(), tunnel.right.inner_v6()] {
            let address = SocketAddr::new(ip, 7_000);
            let listener = tunnel
                .right
                .namespace
                .run(|| TcpListener::bind(address))
                .unwrap()
                .unwrap();
            let left = &tunnel.left.namespace;
            let mut sender = left.run(|| TcpStream::connect(address)).unwrap().unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            sender.write_all(b"through the tunnel").unwrap();
            drop(sender);
            let mut heard = String::new();
            receiver.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, "through the tunnel");
        }
        assert!(
            tunnel
                .left
                .daemon
                .request("get=1\n\n")
                .unwrap()
                .ends_with("errno=0\n\n")
        );
    }
}

#[test]
fn a_tunnel_has_the_mtu_and_the_idle_peers_that_are_asked_for() {
    let test = "a_tunnel_has_the_mtu_and_the_idle_peers_that_are_asked_for";
    if !require_root_lab(test) || !require_programs(test, &["wireguard-go"]) {
        return;
    }
    let lab = Lab::new().unwrap();
    let daemon = Implementation::new("wireguard-go");
    let options = TunnelOptions {
        idle_peers: 20,
        ..TunnelOptions::of_mtu(8_920)
    };
    let tunnel = Tunnel::new(&lab, &daemon, &daemon, &options).unwrap();
    for end in [&tunnel.left, &tunnel.right] {
        let link = end.namespace.link();
        let mtus = ["wg0", "veth0"].map(|name| link.mtu(name).unwrap());
        assert_eq!(mtus, [8_920, 9_000]);
        let listing = end.daemon.request("get=1\n\n").unwrap();
        let lines = |start| {
            listing
                .lines()
                .filter(|line| line.starts_with(start))
                .count()
        };
        assert_eq!((lines("public_key="), lines("allowed_ip=")), (21, 42));
    }
}

#[test]
fn a_daemon_that_ends_at_once_is_reported_with_what_it_wrote() {
    let test = "a_daemon_that_ends_at_once_is_reported_with_what_it_wrote";
    if !require_lab(test) {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let refused =
        convoy_lab::wireguard::Daemon::start(&namespace, &Implementation::new("ls"), "/no");
    let message = refused.err().unwrap().to_string();
    assert!(message.contains("ended with exit status: 2"), "{message}");
    assert!(
        message.contains("'/no': No such file or directory"),
        "{message}"
    );
}
