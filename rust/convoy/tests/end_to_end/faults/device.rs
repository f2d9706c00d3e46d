//! A TUN device that lacks features, and one that is set down.

use std::{net::UdpSocket, os::fd::AsRawFd};

use convoy_lab::{Lab, eventually, wireguard::End};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::{BYTES, batches_sent, carry, convoy_after, ends, until};
use crate::{
    drop_in::open_tun,
    pairing::Program::Convoy,
    scene::{DEADLINE, Pairing, Scene, lab_with},
    stats::Stats,
    traffic::{during_tcp, ping, tcp_both_ways},
};

#[test]
fn a_tun_without_a_virtio_header_carries_tcp_one_packet_per_call() {
    let Some((_turn, lab)) = lab_with(&[Convoy], &["wg", "ping"]) else {
        return;
    };
    let (left, right) = with_an_inherited_tun(&lab, "exec env");
    ping(&left, right.inner_v4());
    tcp_both_ways(&left.namespace, &right, right.inner_v4(), BYTES);
    let stats = Stats::of(&left);
    for state in ["tun_vnet_hdr", "tun_offload_tcp", "tun_coalescing"] {
        assert_eq!(stats.state(state), "off", "{state}");
    }
    for calls in ["packets_per_read", "packets_per_write"] {
        assert_eq!(stats.at_least(2, calls), 0, "{calls}");
    }
    assert!(stats.at_least(2, "segments_per_send") > 0, "no GSO");
    assert_eq!(stats.lost_outbound(), 0);
}

/// The buffers are `min(net.core.[rw]mem_max, 7 MiB)`, which the kernel doubles.
#[test]
fn without_cap_net_admin_socket_buffers_are_limited_and_the_log_says_so() {
    let Some((_turn, lab)) = lab_with(&[Convoy], &["wg", "ping", "setpriv"]) else {
        return;
    };
    const ASKED: u64 = 7 << 20;
    let (left, right) = with_an_inherited_tun(&lab, "exec setpriv --bounding-set -all");
    ping(&left, right.inner_v4());
    let is_right = |end: &End, allowed: [u64; 2]| {
        let stats = Stats::of(end);
        let got = ["udp_receive_buffer", "udp_send_buffer"].map(|name| stats.number(name));
        assert_eq!(got, allowed.map(|bytes| 2 * bytes.min(ASKED)));
        let is_smaller = allowed.iter().any(|bytes| *bytes < ASKED);
        let log = end.daemon.log();
        assert_eq!(log.contains("smaller than requested"), is_smaller, "{log}");
    };
    is_right(&left, ["rmem_max", "wmem_max"].map(limit));
    is_right(&right, [u64::MAX; 2]);
    for (from, to) in [(&left, &right), (&right, &left)] {
        carry(from, to);
    }
}

#[test]
fn tcp_continues_when_an_interface_that_was_set_down_is_up_again() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    during_tcp(left, right, 2, |step| {
        let link = left.namespace.link();
        link.set_down("wg0").unwrap();
        until(left, "it follows the link", |stats| {
            stats.state("link") == "down"
        });
        let bind = || UdpSocket::bind("0.0.0.0:51820").ok();
        let is_free = eventually(DEADLINE, || left.namespace.run(bind).unwrap());
        assert!(is_free.is_some(), "the daemon still has its port");
        drop(is_free);
        link.set_up("wg0").unwrap();
        let handshakes = u64::from(step) + 1;
        until(left, "there is a new handshake", |stats| {
            stats.handshakes() == handshakes
        });
    });
    assert!(batches_sent(left, right) > 0);
    let stats = Stats::of(left);
    assert_eq!((stats.lost_outbound(), stats.state("link")), (0, "up"));
}

/// Two ends of a tunnel. The left one is started with `before` and inherits from this test a TUN
/// without a virtio header.
fn with_an_inherited_tun(lab: &Lab, before: &str) -> (End, End) {
    let [left, right] = ["left", "right"].map(|label| lab.namespace(label).unwrap());
    let (near, far) = (["10.9.0.1/24"], ["10.9.0.2/24"]);
    lab.veth(&left, "veth0", &near, &right, "veth0", &far, 1_500)
        .unwrap();
    let tun = left.run(|| open_tun("wg0")).unwrap().unwrap();
    fcntl(&tun, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let variable = format!("WG_TUN_FD={}", tun.as_raw_fd());
    let inheriting = convoy_after(&left, &format!("export {variable}; {before}"));
    let both = ends(&left, &inheriting, &right, [10, 9, 0, 2].into());
    drop(tun);
    both
}

/// A machine-wide limit: namespaces have none of their own.
fn limit(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
    text.trim().parse().unwrap()
}
