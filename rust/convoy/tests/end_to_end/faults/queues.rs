//! Full kernel queues: every packet arrives or is counted.

use std::net::UdpSocket;

use convoy_lab::{eventually, wireguard::End};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{SINK_PORT, batches_sent, send_into_the_tunnel, udp_socket, until};
use crate::{
    scene::{DEADLINE, Pairing, Scene, output_of},
    stats::Stats,
    traffic::ping,
};

/// While the next hop's link address is unknown, the kernel holds datagrams on the sender's account
/// until its socket is full (`EAGAIN`), and then the TUN's queue fills.
#[test]
fn a_full_transmit_queue_stops_the_intake_and_the_socket_loses_nothing() {
    const BURST: u64 = 4_000;
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    ping(left, right.inner_v4());
    let (near, far) = (link_address(left), link_address(right));
    // Stall only one direction.
    neighbour(right, "10.9.0.1", &near);
    sysctl(right, "ipv4.conf.veth0.arp_ignore=8");
    for patience in ["mcast_solicit=1000", "unres_qlen_bytes=1000000000"] {
        sysctl(left, &format!("ipv4.neigh.veth0.{patience}"));
    }
    output_of(&left.namespace, "ip", &["neigh", "flush", "dev", "veth0"]);
    // With a listener there, the kernels send no ICMP errors.
    let _sinks = [left, right].map(|end| {
        let bind = || UdpSocket::bind(("0.0.0.0", SINK_PORT));
        end.namespace.run(bind).unwrap().unwrap()
    });
    let sent = Stats::of(left).outbound_packets();
    let arrived = Stats::of(right).inbound_packets();

    // A daemon with little CPU time loses some in the queue of the TUN even before.
    let mut offered = 0;
    let stalled = eventually(DEADLINE, || {
        send_into_the_tunnel(left, right, BURST);
        offered += BURST;
        let stats = Stats::of(left);
        let is_full = stats.number("udp_send_blocked") > 0;
        (is_full && stats.number("tun_queue_drops") > 0).then_some(())
    });
    assert!(stalled.is_some(), "the socket and the queue never fill up");
    let came = Stats::of(left).inbound_packets();
    send_into_the_tunnel(right, left, 100);
    until(left, "the other direction has continued", |stats| {
        stats.inbound_packets() == came + 100
    });

    neighbour(left, "10.9.0.2", &far);
    until(left, "every packet is sent or counted", |stats| {
        let sent = stats.outbound_packets() - sent;
        sent + stats.number("tun_queue_drops") == offered
    });
    let stats = Stats::of(left);
    assert_eq!(stats.lost_outbound(), 0);
    let sent = stats.outbound_packets() - sent;
    until(right, "every datagram arrives or is counted", |stats| {
        // When released, the held datagrams are overtaken by others.
        let late = stats.dropped("inbound_behind_window");
        let missing = sent - (stats.inbound_packets() - arrived) - late;
        // A drop on receive may be a whole train.
        let drops = stats.number("udp_kernel_drops");
        (drops..=64 * drops).contains(&missing)
    });
    assert_eq!(
        stats.number("gso_refused_batches"),
        0,
        "GSO must not be blamed"
    );
    assert!(batches_sent(left, right) > 0);
}

#[test]
fn losses_in_a_full_receive_buffer_are_counted() {
    const DATAGRAMS: u64 = 20_000;
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    ping(left, right.inner_v4());
    let socket = udp_socket(right);
    left.daemon.signal(Signal::SIGSTOP).unwrap();
    for _ in 0..DATAGRAMS {
        socket.send_to(&[0xff; 1_200], "10.9.0.1:51820").unwrap();
    }
    left.daemon.signal(Signal::SIGCONT).unwrap();
    until(left, "each is handled or counted", |stats| {
        let handled = stats.dropped("inbound_not_wireguard");
        handled > 0 && handled + stats.number("udp_kernel_drops") == DATAGRAMS
    });
    assert!(Stats::of(left).number("udp_kernel_drops") > 0);
    ping(left, right.inner_v4());
    assert!(batches_sent(right, left) > 0);
}

fn link_address(end: &End) -> String {
    let json = output_of(&end.namespace, "ip", &["-json", "link", "show", "veth0"]);
    let links: Value = serde_json::from_str(&json).unwrap();
    links[0]["address"].as_str().unwrap().to_owned()
}

/// Sets the link address of `ip` in the kernel at `end`.
fn neighbour(end: &End, ip: &str, link_address: &str) {
    let line = format!("neigh replace {ip} lladdr {link_address} dev veth0 nud permanent");
    let arguments: Vec<_> = line.split(' ').collect();
    output_of(&end.namespace, "ip", &arguments);
}

fn sysctl(end: &End, setting: &str) {
    output_of(&end.namespace, "sysctl", &["-w", &format!("net.{setting}")]);
}
