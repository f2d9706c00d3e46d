//! Traffic through the tunnel, whichever program is at the other end.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime},
};

use convoy_lab::{
    eventually,
    wireguard::{End, TunnelOptions, Underlay},
};

use crate::{
    scene::{DEADLINE, Pairing, Scene, for_each_pairing, wg_dump},
    traffic::{answers, ping, tcp, tcp_both_ways, tcp_bytes, udp_echo, udp_echo_of_every_checksum},
};

for_each_pairing! {
    fn the_first_packet_starts_a_handshake_and_is_answered(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        ping(&scene.left, scene.right.inner_v4());
        ping(&scene.right, scene.left.inner_v6());
    }

    fn either_ip_version_carries_either(pairing: Pairing) {
        for underlay in [Underlay::V4, Underlay::V6] {
            let options = TunnelOptions { underlay, ..TunnelOptions::default() };
            let Some(scene) = Scene::with(pairing, &options) else { return };
            let (left, right) = (&scene.left, &scene.right);
            // The first ping starts the handshake.
            for (inner, mtu_less_headers) in [(right.inner_v4(), 1_392), (right.inner_v6(), 1_372)] {
                ping(left, inner);
                tcp(&left.namespace, right, inner, 2_000_000, &AtomicU64::new(0));
                udp_echo(&left.namespace, right, inner, 100, mtu_less_headers);
            }
            ping(right, left.inner_v4());
            ping(right, left.inner_v6());
            assert_eq!(wg_dump(right, 1)[2], left.outer(underlay).to_string());
        }
    }

    fn both_ends_need_the_same_preshared_key(pairing: Pairing) {
        let Some(mut scene) = Scene::new(pairing) else { return };
        set_preshared_key(&mut scene.left);
        assert!(!answers(&scene.left, scene.right.inner_v4()));
        set_preshared_key(&mut scene.right);
        let answered = eventually(DEADLINE, || {
            answers(&scene.left, scene.right.inner_v4()).then_some(())
        });
        assert!(answered.is_some());
        ping(&scene.right, scene.left.inner_v6());
    }

    fn tcp_arrives_intact(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        let (left, right) = (&scene.left, &scene.right);
        let progress = AtomicU64::new(0);
        tcp(&left.namespace, right, right.inner_v4(), tcp_bytes(), &progress);
        tcp(&right.namespace, left, left.inner_v6(), tcp_bytes(), &progress);
    }

    fn tcp_in_both_directions_at_once_arrives_intact(pairing: Pairing) {
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
        let (left, right) = (&scene.left, &scene.right);
        let programs = pairing.ends();
        for (program, end, other) in [(programs.0, left, right), (programs.1, right, left)] {
            // public key, preshared key, endpoint, allowed IPs, handshake, rx, tx, keepalive
            let peer = wg_dump(end, 1);
            let number = |field: usize| peer[field].parse::<u64>().unwrap();
            assert_eq!(peer[0], other.keys.public_base64());
            assert_eq!(peer[2], other.outer(Underlay::V4).to_string());
            assert_eq!(peer[3], format!("{}/32,{}/128", other.inner_v4(), other.inner_v6()));
            let handshake = program.handshake_time(&peer[4]);
            let age = SystemTime::now().duration_since(handshake).unwrap();
            assert!(age < Duration::from_secs(60), "the handshake was {age:?} ago");
            assert!(number(5) > 0, "nothing received");
            assert!(number(6) > 0, "nothing sent");
        }
    }
}

#[test]
fn udp_over_ipv6_arrives_whatever_its_checksum_is() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    udp_echo_of_every_checksum(&left.namespace, right, right.inner_v6());
}

fn set_preshared_key(end: &mut End) {
    end.config.peers[0].preshared_key = Some([7; 32]);
    end.daemon.configure(&end.config).unwrap();
}
