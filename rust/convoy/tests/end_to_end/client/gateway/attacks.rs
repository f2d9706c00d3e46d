//! A peer that wants to harm another one.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use convoy_lab::Namespace;
use etherparse::{Icmpv4Type, PacketBuilder, icmpv4::DestUnreachableHeader};
use nix::sys::socket::{setsockopt, sockopt::SetStruct};
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

const GATEWAY: [u8; 4] = [10, 8, 0, 2];
const HOSTILE: [u8; 4] = [10, 8, 0, 1];
const VICTIM: [u8; 4] = [10, 8, 0, 3];
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, 2);
const HOSTILE6: Ipv6Addr = Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, 1);
/// The gateway's name server.
const DNS: u16 = 53;
/// The port that is forwarded to this host.
const FORWARDED: u16 = 2_222;
/// Unfinished connections of a listener that is as good as full.
const BACKLOG: usize = 1_000;
/// First packets that are sent together.
const BURST: u16 = 400;
/// First fragments that take more than the 4 MiB of a kernel.
const MANY_FRAGMENTS: u16 = 8_000;
/// Bytes of a datagram that a peer's kernel makes fragments of.
const LONG: usize = 3_000;
/// The least MTU with IPv6, less than a segment's.
const NARROW: usize = 1_280;

#[test]
fn connections_that_a_peer_leaves_unfinished_close_no_port_to_others() {
    let args = ["--nat=user", "--nat-dns", "--engine=namespace"];
    let Some(place) = Place::new("", &args) else {
        return;
    };
    under_unfinished_connections(&place, DNS, is_full_of_kernel(DNS), |victim| {
        let connected = || connect(victim, (Ipv4Addr::from(GATEWAY), DNS)).is_ok();
        assert_eq!([(); 6].map(|()| connected()), [true; 6]);
    });
    place.down();
}

#[test]
fn connections_that_a_peer_leaves_unfinished_close_no_forwarded_port_to_others() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    echo(&place.world.client, ("127.0.0.1", ECHO));
    let reverse = format!("-R=10.8.0.2:{FORWARDED}:127.0.0.1:{ECHO}");
    for engine in ENGINES {
        // The gateway counts what the stack drops.
        place.up(&["--nat=user", &reverse, engine]);
        let displaces = || {
            let dropped = &status(&place.world)["nat"]["dropped_packets"]["half_open"];
            dropped.as_u64() > Some(BACKLOG as u64)
        };
        let is_full = || match engine == ENGINES[0] {
            true => is_full_of_kernel(FORWARDED)(),
            false => displaces(),
        };
        under_unfinished_connections(&place, FORWARDED, is_full, |victim| {
            for _ in 0..6 {
                echoes(connect(victim, (Ipv4Addr::from(GATEWAY), FORWARDED)).unwrap());
            }
        });
        place.down();
    }
}

/// Makes one peer begin connections to a port without end and finish none; once the port has as many as it takes, runs
/// what the other peer does.
fn under_unfinished_connections(
    place: &Place,
    port: u16,
    is_full: impl Fn() -> bool,
    does: impl FnOnce(&Namespace),
) {
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
                for from in start..start + BURST {
                    send(&raw, &opening(from, port));
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        // Also if what follows panics.
        let _over = Ends(&is_over);
        let is_full = || is_full().then_some(());
        assert!(eventually(DEADLINE, is_full).is_some(), "it is never full");
        does(victim);
    });
    place.world.shell_at(hostile, "nft delete table ip t");
}

/// Returns whether the backlog of a port of the kernel's in the gateway's namespace is full.
fn is_full_of_kernel(port: u16) -> impl Fn() -> bool {
    move || {
        let pending = inside(&format!(
            "ss -Htn state syn-recv '( sport = :{port} )' | wc -l"
        ));
        pending.trim().parse::<usize>().unwrap() > BACKLOG
    }
}

/// Ends a flood when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

#[test]
fn fragments_without_end_of_a_peer_leave_others_theirs() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    for outside in OUTSIDE {
        echo_datagrams(&place.world.net, (outside, ECHO));
    }
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        for (family, outside) in OUTSIDE.iter().enumerate() {
            under_fragments(&place, family == 1, |victim| {
                for _ in 0..5 {
                    answers(victim, outside, LONG);
                }
                segments_arrive_in_fragments(&place, victim);
            });
        }
        place.down();
    }
}

/// Makes one peer begin packets without end; once they are more than a kernel keeps, runs what the other peer does.
fn under_fragments(place: &Place, is_ipv6: bool, does: impl FnOnce(&Namespace)) {
    let [hostile, victim] = place.peers();
    let domain = if is_ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let raw = raw_of(hostile, domain);
    let [is_over, are_many] = [(); 2].map(|()| AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for ident in (1..=u16::MAX).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                match is_ipv6 {
                    true => send_to(&raw, GATEWAY6.into(), &fragment6(ident)),
                    false => send(&raw, &fragment4(ident)),
                }
                are_many.fetch_or(ident > MANY_FRAGMENTS, Ordering::Relaxed);
                if ident.is_multiple_of(100) {
                    thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let _over = Ends(&is_over);
        let are_many = || are_many.load(Ordering::Relaxed).then_some(());
        assert!(eventually(DEADLINE, are_many).is_some());
        does(victim);
    });
}

/// Exchanges bytes with a host outside in segments of which the peer's kernel makes fragments.
fn segments_arrive_in_fragments(place: &Place, peer: &Namespace) {
    let target = OUTSIDE[0];
    let narrow =
        format!("ip route replace {target}/32 dev wg0 mtu lock 1420; ip link set wg0 mtu {NARROW}");
    place.world.shell_at(peer, &narrow);
    let mut stream = connect(peer, (target, ECHO)).unwrap();
    setsockopt(&stream, PathMtuDiscovery, &libc::IP_PMTUDISC_INTERFACE).unwrap();
    let mut back = vec![0; 10 * LONG];
    stream.write_all(&vec![7; back.len()]).unwrap();
    stream.read_exact(&mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 7));
    let wide = format!("ip link set wg0 mtu 1420; ip route del {target}/32 dev wg0");
    place.world.shell_at(peer, &wide);
}

#[derive(Clone, Copy)]
struct PathMtuDiscovery;

nix::setsockopt_impl!(
    PathMtuDiscovery,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int,
    SetStruct<libc::c_int>
);

/// The first fragment of a datagram to a host outside.
fn fragment4(ident: u16) -> Vec<u8> {
    let [a, b] = ident.to_be_bytes();
    let mut packet = vec![0x45, 0, 0, 28, a, b, 0x20, 0, 64, 17, 0, 0];
    let target: Ipv4Addr = OUTSIDE[0].parse().unwrap();
    packet.extend([HOSTILE, target.octets()].concat());
    packet.extend([0, 7, 0, 7, 0, 100, 0, 0]);
    packet
}

/// The same over IPv6.
fn fragment6(ident: u16) -> Vec<u8> {
    let [a, b] = ident.to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, 0, 16, 44, 64];
    let target: Ipv6Addr = OUTSIDE[1].parse().unwrap();
    packet.extend([HOSTILE6.octets(), target.octets()].concat());
    packet.extend([17, 0, 0, 1, 0, 0, a, b]);
    packet.extend([0, 7, 0, 7, 0, 100, 0, 0]);
    packet
}

/// A first packet of a connection to a port of the gateway.
fn opening(from: u16, to: u16) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(HOSTILE, GATEWAY, 64)
        .tcp(from, to, 1, 64_000)
        .syn()
        .write(&mut packet, &[])
        .unwrap();
    packet
}

/// A socket that sends whole packets.
fn raw(peer: &Namespace) -> Socket {
    raw_of(peer, Domain::IPV4)
}

fn raw_of(peer: &Namespace, domain: Domain) -> Socket {
    let raw = Protocol::from(libc::IPPROTO_RAW);
    let open = || Socket::new(domain, Type::RAW, Some(raw)).unwrap();
    peer.run(open).unwrap()
}

fn send(raw: &Socket, packet: &[u8]) {
    send_to(raw, GATEWAY.into(), packet);
}

fn send_to(raw: &Socket, gateway: IpAddr, packet: &[u8]) {
    let to = SocketAddr::from((gateway, 0));
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
