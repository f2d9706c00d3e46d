//! Full kernel queues: every packet arrives or is counted.

use std::net::UdpSocket;

use convoy_lab::{eventually, wireguard::End};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{SINK_PORT, batches_sent, send_into_the_tunnel, udp_socket, until};
use crate::{
    pairing::Program,
    scene::{DEADLINE, Pairing, Scene, output_of},
    star::Star,
    stats::Stats,
    traffic::{answers, ping},
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
    // The kernel's own packets, about its addresses of IPv6, would be counted as well.
    let off = "echo 1 > /proc/sys/net/ipv6/conf/wg0/disable_ipv6";
    output_of(&left.namespace, "sh", &["-c", off]);
    let far = stall(left, "veth0", "10.9.0.1", right);
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
        let is_full = stats.event("udp_send_blocked") > 0;
        (is_full && stats.event("tun_queue_drops") > 0).then_some(())
    });
    assert!(stalled.is_some(), "the socket and the queue never fill up");
    let came = Stats::of(left).inbound_packets();
    send_into_the_tunnel(right, left, 100);
    until(left, "the other direction has continued", |stats| {
        stats.inbound_packets() == came + 100
    });

    neighbour(left, "veth0", "10.9.0.2", &far);
    until(left, "every packet is sent or counted", |stats| {
        let sent = stats.outbound_packets() - sent;
        sent + stats.event("tun_queue_drops") == offered
    });
    let stats = Stats::of(left);
    assert_eq!(stats.lost_outbound(), 0);
    let sent = stats.outbound_packets() - sent;
    until(right, "every datagram arrives or is counted", |stats| {
        // When released, the held datagrams are overtaken by others.
        let late = stats.dropped("inbound_behind_window");
        let missing = sent - (stats.inbound_packets() - arrived) - late;
        // A drop on receive may be a whole train.
        let drops = stats.event("udp_kernel_drops");
        (drops..=64 * drops).contains(&missing)
    });
    assert_eq!(
        stats.event("gso_refused_batches"),
        0,
        "GSO must not be blamed"
    );
    assert!(batches_sent(left, right) > 0);
}

/// A full IPv4 socket costs IPv6 peers nothing, and its own peers only what does not fit.
#[test]
fn a_full_socket_of_one_address_family_does_not_stop_the_other() {
    let Some(star) = Star::new(Program::Convoy, &[Program::Convoy; 2]) else {
        return;
    };
    let (hub, stalled, other) = (&star.hub, &star.spokes[0], &star.spokes[1]);
    for (end, address, device) in [(hub, "fd09::1/64", "veth3"), (other, "fd09::3/64", "veth0")] {
        let line = format!("addr add {address} dev {device} nodad");
        output_of(&end.namespace, "ip", &line.split(' ').collect::<Vec<_>>());
    }
    let key = other.keys.public_base64();
    let set = ["set", "wg0", "peer", &key, "endpoint", "[fd09::3]:51820"];
    output_of(&hub.namespace, "wg", &set);
    ping(hub, other.inner_v4());
    let far = stall(hub, "veth2", "10.9.2.1", stalled);

    let fills_up = eventually(DEADLINE, || {
        send_into_the_tunnel(hub, stalled, 100);
        (Stats::of(hub).dropped("outbound_queue_full") > 0).then_some(())
    });
    assert!(fills_up.is_some(), "{:?}", Stats::of(hub));
    for _ in 0..5 {
        ping(hub, other.inner_v4());
    }
    neighbour(hub, "veth2", "10.9.2.2", &far);
    // Packets that wait in the queue are ahead of it, so it may not fit.
    let goes_on = || answers(hub, stalled.inner_v4()).then_some(());
    assert!(eventually(DEADLINE, goes_on).is_some());
}

/// A socket that is full because its link is slow holds the sender back, even if an idle peer is reached
/// over the other address family.
#[test]
fn a_slow_link_holds_the_sender_back_beside_an_idle_peer_of_the_other_family() {
    const PACKETS: u64 = 15_000;
    let Some(star) = Star::new(Program::Convoy, &[Program::Convoy; 2]) else {
        return;
    };
    let (hub, busy, idle) = (&star.hub, &star.spokes[0], &star.spokes[1]);
    let key = idle.keys.public_base64();
    let set = ["set", "wg0", "peer", &key, "endpoint", "[fd09::3]:51820"];
    output_of(&hub.namespace, "wg", &set);
    let slow = "qdisc add dev veth2 root tbf rate 20mbit burst 256k limit 200m";
    output_of(&hub.namespace, "tc", &slow.split(' ').collect::<Vec<_>>());
    // More than the socket and the queue hold, so that the socket stays full for a second or more.
    let sent = eventually(DEADLINE, || {
        send_into_the_tunnel(hub, busy, 1_000);
        (Stats::of(hub).outbound_packets() >= PACKETS).then_some(())
    });
    let stats = Stats::of(hub);
    assert!(sent.is_some(), "{stats:?}");
    assert!(stats.event("udp_send_blocked") > 0, "{stats:?}");
    assert_eq!(stats.dropped("outbound_queue_full"), 0, "{stats:?}");
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
        handled > 0 && handled + stats.event("udp_kernel_drops") == DATAGRAMS
    });
    assert!(Stats::of(left).event("udp_kernel_drops") > 0);
    ping(left, right.inner_v4());
    assert!(batches_sent(right, left) > 0);
}

/// Makes the kernel of `from` wait for the link address of its neighbour `to`, in this direction only;
/// returns that address. `ip` is the address of `from` on that link.
fn stall(from: &End, device: &str, ip: &str, to: &End) -> String {
    let (near, far) = (link_address(from, device), link_address(to, "veth0"));
    neighbour(to, "veth0", ip, &near);
    sysctl(to, "ipv4.conf.veth0.arp_ignore=8");
    for patience in ["mcast_solicit=1000", "unres_qlen_bytes=1000000000"] {
        sysctl(from, &format!("ipv4.neigh.{device}.{patience}"));
    }
    output_of(&from.namespace, "ip", &["neigh", "flush", "dev", device]);
    far
}

fn link_address(end: &End, device: &str) -> String {
    let json = output_of(&end.namespace, "ip", &["-json", "link", "show", device]);
    let links: Value = serde_json::from_str(&json).unwrap();
    links[0]["address"].as_str().unwrap().to_owned()
}

/// Sets the link address of the neighbour `ip`.
fn neighbour(end: &End, device: &str, ip: &str, link_address: &str) {
    let line = format!("neigh replace {ip} lladdr {link_address} dev {device} nud permanent");
    let arguments: Vec<_> = line.split(' ').collect();
    output_of(&end.namespace, "ip", &arguments);
}

fn sysctl(end: &End, setting: &str) {
    output_of(&end.namespace, "sysctl", &["-w", &format!("net.{setting}")]);
}
