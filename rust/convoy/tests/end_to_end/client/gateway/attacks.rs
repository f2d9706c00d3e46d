//! A peer that wants to harm another one.

use std::{
    net::Ipv4Addr,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use convoy_lab::Namespace;
use etherparse::{Icmpv4Type, PacketBuilder, icmpv4::DestUnreachableHeader};
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

const GATEWAY: [u8; 4] = [10, 8, 0, 2];
const HOSTILE: [u8; 4] = [10, 8, 0, 1];
const VICTIM: [u8; 4] = [10, 8, 0, 3];
/// The gateway's name server.
const DNS: u16 = 53;
/// Unfinished connections of a listener that is as good as full.
const BACKLOG: usize = 1_000;
/// First packets that are sent together.
const BURST: u16 = 400;

#[test]
fn connections_that_a_peer_leaves_unfinished_close_no_port_to_others() {
    let args = ["--nat=user", "--nat-dns", "--engine=namespace"];
    let Some(place) = Place::new("", &args) else {
        return;
    };
    let [hostile, victim] = place.peers();
    // Its kernel knows nothing of these connections, and would reset them.
    let silence = "nft 'add table ip t; add chain ip t o { type filter hook output priority 0; }; \
                   add rule ip t o tcp flags rst drop'";
    place.world.shell_at(hostile, silence);
    let is_over = AtomicBool::new(false);
    let raw = raw(hostile);
    thread::scope(|scope| {
        scope.spawn(|| {
            for start in (1_024..60_000).step_by(usize::from(BURST)).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                for port in start..start + BURST {
                    send(&raw, &opening(port));
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        // Until the backlog is full.
        let is_full = || {
            let pending = inside("ss -Htn state syn-recv '( sport = :53 )' | wc -l");
            (pending.trim().parse::<usize>().unwrap() > BACKLOG).then_some(())
        };
        let was_full = eventually(DEADLINE, is_full).is_some();
        let connected: Vec<_> = (0..6)
            .map(|_| connect(victim, (Ipv4Addr::from(GATEWAY), DNS)).is_ok())
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(was_full);
        assert_eq!(connected, [true; 6]);
    });
    place.down();
}

#[test]
fn an_icmp_error_of_a_peer_shortens_nobody_elses_packets() {
    let Some(place) = Place::new("", NAT) else {
        return;
    };
    let [hostile, _] = place.peers();
    let mut reply = Vec::new();
    let quoted = PacketBuilder::ipv4(GATEWAY, VICTIM, 64).icmpv4_echo_reply(1, 1);
    quoted.write(&mut reply, &[]).unwrap();
    let mut error = Vec::new();
    let too_long = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 552 };
    PacketBuilder::ipv4(HOSTILE, GATEWAY, 64)
        .icmpv4(Icmpv4Type::DestinationUnreachable(too_long))
        .write(&mut error, &reply)
        .unwrap();
    let raw = raw(hostile);
    for _ in 0..10 {
        send(&raw, &error);
    }
    // It has arrived, as this comes behind it.
    assert!(pings(hostile, &["10.8.0.2"]));
    let route = inside("ip route get 10.8.0.3");
    assert!(!route.contains("552"), "{route}");
    place.down();
}

/// A first packet of a connection to the gateway's name server.
fn opening(port: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(HOSTILE, GATEWAY, 64)
        .tcp(port, DNS, 1, 64_000)
        .syn()
        .write(&mut packet, &[])
        .unwrap();
    packet
}

/// A socket that sends whole packets.
fn raw(peer: &Namespace) -> Socket {
    let raw = Protocol::from(libc::IPPROTO_RAW);
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(raw)).unwrap();
    peer.run(open).unwrap()
}

fn send(raw: &Socket, packet: &[u8]) {
    let to = SocketAddr::from((GATEWAY, 0));
    // A full queue is no matter: there are more.
    let _ = raw.send_to(packet, &to.into());
}

/// Runs a command in the gateway's namespace and returns its output.
fn inside(command: &str) -> String {
    let holder = holder_of_user().to_string();
    let output = Command::new("nsenter")
        .args(["--net", "--target", &holder, "sh", "-c", command])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
