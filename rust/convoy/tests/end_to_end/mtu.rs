//! Tunnels with unusual MTUs.

use std::{sync::atomic::AtomicU64, thread};

use convoy_lab::{eventually, wireguard::TunnelOptions};

use crate::{
    pairing::Program,
    scene::{DEADLINE, Scene, for_each_pairing},
    traffic::{answers_of, await_progress, ping, ping_of, tcp, tcp_bytes, udp_echo},
};

/// The smallest MTU of IPv4 (RFC 791).
const SMALLEST: u32 = 68;

/// About the smallest MTU with which TCP works on Linux (net.ipv4.tcp_min_snd_mss).
const SMALLEST_FOR_TCP: u32 = 100;

/// 9,000 bytes less IPv6, UDP and WireGuard headers.
const JUMBO: u32 = 8_920;

for_each_pairing! {
    fn the_minimum_ipv4_mtu_works(pairing: Pairing) {
        let options = TunnelOptions { tunnel_mtu: SMALLEST, ..TunnelOptions::default() };
        let Some(scene) = Scene::with(pairing, &options) else { return };
        for size in [29, SMALLEST as usize] {
            ping_of(&scene.left, scene.right.inner_v4(), size);
        }
    }

    fn tcp_works_with_a_tiny_mtu(pairing: Pairing) {
        let options = TunnelOptions { tunnel_mtu: SMALLEST_FOR_TCP, ..TunnelOptions::default() };
        let Some(scene) = Scene::with(pairing, &options) else { return };
        let (left, right) = (&scene.left, &scene.right);
        tcp(&left.namespace, right, right.inner_v4(), 500_000, &AtomicU64::new(0));
    }

    fn jumbo_packets_go_through_unfragmented(pairing: Pairing) {
        if !pairing.both(Program::carries_jumbo_packets) { return }
        let options =
            TunnelOptions { cable_mtu: 9_000, tunnel_mtu: JUMBO, ..TunnelOptions::default() };
        let Some(scene) = Scene::with(pairing, &options) else { return };
        let (left, right) = (&scene.left, &scene.right);
        ping_of(left, right.inner_v4(), JUMBO as usize);
        ping_of(right, left.inner_v6(), JUMBO as usize);
        tcp(&left.namespace, right, right.inner_v4(), tcp_bytes(), &AtomicU64::new(0));
        udp_echo(&left.namespace, right, right.inner_v4(), 400, JUMBO as usize - 28);
    }

    fn the_mtu_may_change_while_tcp_runs(pairing: Pairing) {
        let Some(scene) = Scene::new(pairing) else { return };
        let (left, right) = (&scene.left, &scene.right);
        ping(left, right.inner_v4());
        let bytes = tcp_bytes();
        let progress = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| tcp(&left.namespace, right, right.inner_v4(), bytes, &progress));
            for (part, mtu) in [(1, 1_280), (2, 576), (3, 1_420)] {
                await_progress(&progress, bytes / 5 * part);
                for end in [left, right] {
                    let link = end.namespace.link();
                    link.bring_up(end.daemon.interface(), mtu, &[""; 0]).unwrap();
                }
            }
        });
        // BoringTun sometimes loses the first packet after TCP.
        let is_answered = || answers_of(left, right.inner_v4(), 1_420).then_some(());
        assert!(eventually(DEADLINE, is_answered).is_some());
    }
}
