//! Packets through the tunnel, whoever is at its other end.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use convoy_lab::{
    eventually,
    wireguard::{TunnelOptions, Underlay},
};

use crate::{
    scene::{DEADLINE, Scene, for_each_pairing, wg_dump},
    traffic::{answers, ping, tcp, tcp_both_ways, tcp_bytes, udp_echo},
};

for_each_pairing! {
    fn the_first_packet_brings_about_a_handshake_and_is_answered(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        ping(&scene.left, scene.right.inner_v4());
        ping(&scene.right, scene.left.inner_v6());
    }

    fn ipv6_carries_the_tunnel(pairing: Pairing) {
        let options = TunnelOptions { underlay: Underlay::V6, ..TunnelOptions::default() };
        let Some(scene) = Scene::with(pairing, &options) else { return };
        ping(&scene.left, scene.right.inner_v4());
        ping(&scene.right, scene.left.inner_v6());
        assert_eq!(wg_dump(&scene.right, 1)[2], scene.left.outer(Underlay::V6).to_string());
    }

    fn a_preshared_key_is_part_of_the_handshake(pairing: Pairing) {
        let Some(mut scene) = Scene::new(pairing) else { return };
        let tunnel = &mut *scene;
        for end in [&mut tunnel.left, &mut tunnel.right] {
            end.config.peers[0].preshared_key = Some([7; 32]);
            end.daemon.configure(&end.config).unwrap();
        }
        ping(&scene.left, scene.right.inner_v4());
    }

    fn tcp_arrives_unharmed(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        let (left, right) = (&scene.left, &scene.right);
        let progress = AtomicU64::new(0);
        tcp(&left.namespace, right, right.inner_v4(), tcp_bytes(), &progress);
        tcp(&right.namespace, left, left.inner_v6(), tcp_bytes(), &progress);
    }

    fn tcp_in_both_directions_at_once_arrives_unharmed(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        let (left, right) = (&scene.left, &scene.right);
        tcp_both_ways(&left.namespace, right, right.inner_v4(), tcp_bytes() / 2);
    }

    fn datagrams_of_all_sizes_are_echoed_byte_for_byte(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        let (left, right) = (&scene.left, &scene.right);
        // The MTU of 1,420 less the IP and UDP headers.
        udp_echo(&left.namespace, right, right.inner_v4(), 2_000, 1_392);
        udp_echo(&left.namespace, right, right.inner_v6(), 2_000, 1_372);
    }

    fn wg_shows_the_handshake_the_endpoint_and_the_traffic(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        ping(&scene.left, scene.right.inner_v4());
        for (end, other) in [(&scene.left, &scene.right), (&scene.right, &scene.left)] {
            // public key, preshared key, endpoint, allowed IPs, handshake, rx, tx, keepalive
            let peer = wg_dump(end, 1);
            let number = |field: usize| peer[field].parse::<u64>().unwrap();
            assert_eq!(peer[0], other.keys.public_base64());
            assert_eq!(peer[2], other.outer(Underlay::V4).to_string());
            assert_eq!(peer[3], format!("{}/32,{}/128", other.inner_v4(), other.inner_v6()));
            let age = SystemTime::now()
                .duration_since(UNIX_EPOCH + Duration::from_secs(number(4)))
                .unwrap();
            assert!(age < Duration::from_secs(60), "the handshake was {age:?} ago");
            assert!(number(5) > 0, "nothing received");
            assert!(number(6) > 0, "nothing sent");
        }
    }

    fn the_peer_is_followed_to_its_new_address(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        ping(&scene.left, scene.right.inner_v4());
        let link = scene.left.namespace.link();
        link.remove_address("veth0", "10.9.0.1/24").unwrap();
        link.add_address("veth0", "10.9.0.7/24").unwrap();
        // The left daemon may send once from the address that it no longer has.
        let answered = eventually(DEADLINE, || {
            answers(&scene.left, scene.right.inner_v4()).then_some(())
        });
        assert!(answered.is_some());
        assert_eq!(wg_dump(&scene.right, 1)[2], "10.9.0.7:51820");
        ping(&scene.right, scene.left.inner_v4());
    }
}
