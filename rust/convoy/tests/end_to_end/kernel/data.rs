//! Traffic between Convoy and the kernel, MTUs, ICMP errors and ECN.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    sync::atomic::AtomicU64,
    thread,
    time::Duration,
};

use convoy_lab::{
    Namespace, eventually,
    wireguard::{TunnelOptions, Underlay},
};

use super::{
    guest::PATIENCE,
    pair::{Pair, Role, for_each_role, right_v4, right_v6},
};
use crate::{
    scene::output_of,
    traffic::{ping, ping_of, tcp_between, udp_echo_between},
};

/// Bytes of one TCP connection: a second or two at the guest's speed.
const BYTES: u64 = 8_000_000;
/// 9,000 bytes less IPv6, UDP and WireGuard headers.
const JUMBO: u32 = 8_920;
/// The smallest MTU of IPv6 (RFC 8200).
const SMALLEST: u32 = 1_280;
/// Rules that mark each datagram of the tunnel that leaves by `outside`.
const MARK: &str = "table inet marks { chain out { type filter hook postrouting priority 0;
    oifname outside udp sport 51820 ip ecn ect0 counter ip ecn set ce; }; }";

for_each_role! {
    fn either_ip_version_carries_either(role: Role) {
        for underlay in [Underlay::V4, Underlay::V6] {
            let options = TunnelOptions { underlay, ..TunnelOptions::default() };
            let Some(pair) = Pair::with(role, &options) else { return };
            pair.begin();
            let (left, right) = (&pair.left.namespace, &pair.right);
            for (to_right, to_left, largest) in [
                (right_v4(), pair.left.inner_v4(), 1_392),
                (right_v6(), pair.left.inner_v6(), 1_372),
            ] {
                tcp_between(left, right, to_right, BYTES, &AtomicU64::new(0));
                tcp_between(right, left, to_left, BYTES, &AtomicU64::new(0));
                udp_echo_between(left, right, to_right, 400, largest);
                udp_echo_between(right, left, to_left, 400, largest);
            }
            assert_eq!(pair.guest_dump(2), pair.left.outer(underlay).to_string());
            assert!(pair.guest_dump(4).parse::<u64>().unwrap() > 0, "no handshake");
        }
    }

    /// Its own TCP hands WireGuard super-packets, and takes what GRO has put together.
    fn the_guests_own_sockets_are_echoed(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        pair.begin();
        pair.shell("nc -ll -p 7000 -e cat > /dev/null 2>&1 & echo $! > /run/echo");
        let echoed = [[10, 8, 0, 2].into(), IpAddr::from([0xfd08, 0, 0, 0, 0, 0, 0, 2])];
        for ip in echoed {
            is_echoed(&pair.left.namespace, SocketAddr::new(ip, 7_000));
        }
        pair.shell("kill $(cat /run/echo)");
    }

    fn jumbo_packets_go_through_unfragmented(role: Role) {
        with_mtu(role, &TunnelOptions { cable_mtu: 9_000, tunnel_mtu: JUMBO, ..TunnelOptions::default() });
    }

    /// The cable has no room for more.
    fn the_smallest_mtu_of_ipv6_goes_through_unfragmented(role: Role) {
        for (underlay, headers) in [(Underlay::V4, 60), (Underlay::V6, 80)] {
            let cable_mtu = SMALLEST + headers;
            with_mtu(role, &TunnelOptions { underlay, cable_mtu, tunnel_mtu: SMALLEST, ..TunnelOptions::default() });
        }
    }

    fn icmp_errors_cross_the_tunnel(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        pair.begin();
        let (left, right) = (&pair.left.namespace, &pair.right);
        for (from, to) in [
            (left, right_v4()), (left, right_v6()),
            (right, pair.left.inner_v4()), (right, pair.left.inner_v6()),
        ] {
            is_refused(from, to);
        }
        // Convoy's packets end in the guest, which must not pass them on.
        let trace = ["-n", "-c1", "-W60", "-t1", "10.7.0.2"];
        let output = left.command("ping").args(trace).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("Time to live exceeded"), "{said}");
    }

    fn a_narrow_link_behind_the_kernel_is_noticed(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        pair.begin();
        pair.shell("ip link set inside mtu 1280");
        let left = &pair.left.namespace;
        let send = ["-n", "-c1", "-W5", "-M", "do", "-s", "1372", "10.7.0.2"];
        let is_told = || {
            let output = left.command("ping").args(send).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            said.contains("1280").then_some(())
        };
        assert!(eventually(PATIENCE, is_told).is_some());
        tcp_between(left, &pair.right, right_v4(), BYTES, &AtomicU64::new(0));
        tcp_between(left, &pair.right, right_v6(), BYTES, &AtomicU64::new(0));
    }

    fn congestion_marks_pass_in_both_directions(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        pair.begin();
        let (left, right) = (&pair.left.namespace, &pair.right);
        output_of(left, "nft", &[MARK]);
        pair.shell(&format!("nft '{MARK}'"));
        for (at, link) in [(left, "wg0"), (right, "inside")] {
            let count = format!("table ip count {{ chain in {{ type filter hook prerouting priority 0;
                iifname {link} ip ecn ce counter; iifname {link} ip ecn not-ect counter; }}; }}");
            output_of(at, "nft", &[&count]);
        }
        // ECT(0), which the answers copy.
        for (from, to) in [(left, right_v4()), (right, pair.left.inner_v4())] {
            output_of(from, "ping", &["-n", "-c5", "-i0.2", "-W60", "-Q2", &to.to_string()]);
        }
        for at in [left, right] {
            let counted = output_of(at, "nft", &["list", "table", "ip", "count"]);
            let packets = |ecn: &str| {
                let line = counted.lines().find(|line| line.contains(ecn)).unwrap();
                let count = line.split("packets ").nth(1).unwrap();
                count.split(' ').next().unwrap().parse::<u32>().unwrap()
            };
            assert!(packets("ecn ce") >= 5, "{counted}");
            assert_eq!(packets("ecn not-ect"), 0, "{counted}");
        }
    }
}

#[test]
#[ignore = "make interop-kernel"]
fn a_destination_without_a_peer_is_reported_by_the_guest() {
    let Some(pair) = Pair::new(Role::KernelToConvoy) else {
        return;
    };
    pair.begin();
    let (said, status) = pair.try_shell("ping -c 1 -W 5 10.8.0.99");
    assert_ne!(status, 0, "{said}");
    assert!(said.contains("Required key not available"), "{said}");
}

fn with_mtu(role: Role, options: &TunnelOptions) {
    let Some(pair) = Pair::with(role, options) else {
        return;
    };
    pair.begin();
    let (left, right) = (&pair.left.namespace, &pair.right);
    let size = options.tunnel_mtu as usize;
    ping_of(&pair.left, right_v4(), size);
    ping_of(&pair.left, right_v6(), size);
    tcp_between(left, right, right_v4(), BYTES, &AtomicU64::new(0));
    tcp_between(right, left, pair.left.inner_v6(), BYTES, &AtomicU64::new(0));
    udp_echo_between(left, right, right_v4(), 100, size - 28);
    ping(&pair.left, right_v4());
}

/// Sends bytes to an echo server and compares what comes back.
fn is_echoed(from: &Namespace, server: SocketAddr) {
    let connect = || TcpStream::connect_timeout(&server, PATIENCE).ok();
    let stream = eventually(PATIENCE, || from.run(connect).unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..BYTES as u32 / 4)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    let mut heard = vec![0; sent.len()];
    thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&sent).unwrap());
        (&stream).read_exact(&mut heard).unwrap();
    });
    assert!(heard == sent, "the echo of {server} differs");
}

/// Sends to a closed port until the error arrives.
fn is_refused(from: &Namespace, to: IpAddr) {
    let any: IpAddr = if to.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    let socket = from.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
    socket.connect((to, 9)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let refused = eventually(PATIENCE, || {
        let sent = socket.send(b"?").map(drop);
        let heard = sent.and_then(|()| socket.recv(&mut [0]).map(drop));
        heard
            .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
            .then_some(())
    });
    assert!(refused.is_some(), "{to} does not refuse");
}
