//! Changes of the configuration while TCP runs; no data is lost.

use std::{
    fs,
    sync::{Mutex, atomic::AtomicU64},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_lab::wireguard::{End, KeyPair, TunnelOptions, Underlay};

use crate::{
    pairing::Program,
    scene::{Scene, for_each_pairing, output_of, wg_dump},
    traffic::{during_tcp, ping_of, tcp, tcp_bytes, udp_echo},
};

/// A veth's 65,535 bytes less IPv6, UDP and WireGuard headers.
const LARGEST: u32 = 65_455;

for_each_pairing! {
    fn the_listen_port_may_change_during_a_transfer(pairing: Pairing) {
        if !pairing.ends().0.changes_its_port() { return }
        let Some(scene) = Scene::new(pairing) else { return };
        during_a_transfer(&scene, |step| {
            let port = (40_000 + step).to_string();
            wg_set(&scene.left, &["listen-port", &port]);
        });
        assert_eq!(wg_dump(&scene.right, 1)[2], "10.9.0.1:40003");
    }

    fn the_firewall_mark_may_change_during_a_transfer(pairing: Pairing) {
        if !pairing.both(Program::changes_itself) { return }
        let Some(scene) = Scene::new(pairing) else { return };
        during_a_transfer(&scene, |step| {
            let mark = (step * 7).to_string();
            wg_set(&scene.left, &["fwmark", &mark]);
            wg_set(&scene.right, &["fwmark", &mark]);
        });
        assert_eq!(wg_dump(&scene.left, 0)[3], "0x15");
    }

    fn the_private_key_may_change_during_a_transfer(pairing: Pairing) {
        if !pairing.both(Program::changes_itself) { return }
        let Some(scene) = Scene::new(pairing) else { return };
        let (left, right) = (&scene.left, &scene.right);
        let known = Mutex::new(left.keys.clone());
        during_a_transfer(&scene, |_| {
            let keys = KeyPair::generate();
            let mut known = known.lock().unwrap();
            let file = left.namespace.run_directory().join("key");
            fs::write(&file, BASE64_STANDARD.encode(keys.private)).unwrap();
            wg_set(right, &["peer", &known.public_base64(), "remove"]);
            let networks = format!("{}/32,{}/128", left.inner_v4(), left.inner_v6());
            wg_set(right, &["peer", &keys.public_base64(), "allowed-ips", &networks]);
            wg_set(left, &["private-key", "/run/key"]);
            *known = keys;
        });
    }

    fn packets_of_the_largest_mtu_and_half_of_it_go_through(pairing: Pairing) {
        if !pairing.both(Program::carries_jumbo_packets) { return }
        let options = TunnelOptions {
            cable_mtu: 65_535,
            tunnel_mtu: LARGEST,
            ..TunnelOptions::default()
        };
        let Some(scene) = Scene::with(pairing, &options) else { return };
        let (left, right) = (&scene.left, &scene.right);
        for size in [34_000, LARGEST as usize] {
            ping_of(left, right.inner_v4(), size);
            ping_of(right, left.inner_v6(), size);
        }
        tcp(&left.namespace, right, right.inner_v4(), tcp_bytes(), &AtomicU64::new(0));
        udp_echo(&left.namespace, right, right.inner_v4(), 100, 34_000);
        assert_eq!(wg_dump(right, 1)[2], left.outer(Underlay::V4).to_string());
    }
}

#[test]
fn a_destination_without_a_peer_is_reported_unreachable() {
    let Some(scene) = Scene::new(crate::scene::Pairing::ConvoyToConvoy) else {
        return;
    };
    for (to, answer) in [
        ("10.8.0.99", "Destination Host Unreachable"),
        ("fd08::99", "Address unreachable"),
    ] {
        let mut ping = scene.left.namespace.command("ping");
        let output = ping.args(["-n", "-c1", "-W20", to]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(answer), "{said}");
    }
}

/// Makes three changes, numbered from 1, while `left` sends to `right`.
fn during_a_transfer(scene: &Scene, change: impl Fn(u16)) {
    during_tcp(&scene.left, &scene.right, 3, change);
}

fn wg_set(end: &End, arguments: &[&str]) {
    let arguments = [&["set", "wg0"], arguments].concat();
    output_of(&end.namespace, "wg", &arguments);
}
