//! The way to targets outside, as peers see it: its routers, its MTU, and why datagrams do not arrive.
//!
//! ```text
//!  peer 10.8.0.3 ══ 10.8.0.2 gateway 192.168.1.2 ── 192.168.1.1 net ── hosts behind it: 198.18.0.50
//! ```

use std::{io, net::UdpSocket, time::Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::*;

/// Hosts behind a router, one of each family.
const BEYOND: [&str; 2] = ["198.18.0.50", "2001:db8:18::50"];
/// The routers on the way there.
const GATEWAY: [&str; 2] = ["10.8.0.2", "fd08::2"];
const ROUTER: [&str; 2] = ["192.168.1.1", "2001:db8:2::1"];
/// Hosts that the router forbids.
const PROHIBITED: [&str; 2] = ["198.18.0.97", "2001:db8:18::97"];
/// The MTU of the link behind the router.
const NARROW: usize = 1_300;
/// Where traceroute(8) begins.
const FIRST_PORT: u16 = 33_434;

fn place() -> Option<Place> {
    let place = Place::without_gateway("")?;
    let [server, _] = place.peers();
    place.world.shell_at(
        server,
        // It is a peer, too, and leads the gateway's addresses into the tunnel.
        "ip addr add 198.18.0.50/32 dev lo; ip addr add 2001:db8:18::50/128 dev lo nodad
         ip rule add from 198.18.0.50 table 100; ip -6 rule add from 2001:db8:18::50 table 100
         ip route add default via 203.0.113.254 table 100
         ip route add default via 2001:db8:1::fe table 100",
    );
    place.world.shell_at(
        &place.world.net,
        "ip route add 198.18.0.50 via 203.0.113.1; ip route add 2001:db8:18::50 via 2001:db8:1::1
         ip route add prohibit 198.18.0.97; ip route add prohibit 2001:db8:18::97",
    );
    for namespace in [&place.world.client, &place.world.net, server] {
        place.world.shell_at(
            namespace,
            "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit",
        );
    }
    Some(place)
}

#[test]
fn traceroute_names_each_router_and_ends_at_its_target() {
    let Some(place) = place() else { return };
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        let peer = place.peers()[1];
        for family in 0..2 {
            let (expired, port) = [([11, 0], [3, 3]), ([3, 0], [1, 4])][family];
            let way = [
                (GATEWAY[family], expired),
                (ROUTER[family], expired),
                (BEYOND[family], port),
            ];
            for (hops, expected) in (1..).zip(way) {
                let heard = probe(&place, BEYOND[family], hops);
                assert_eq!(heard, told(expected), "{engine} {hops}");
                let mut ping = peer.command("ping");
                let hops = hops.to_string();
                ping.args(["-n", "-c1", "-W1", "-t", &hops, BEYOND[family]]);
                let output = String::from_utf8(ping.output().unwrap().stdout).unwrap();
                let from = format!("rom {}", expected.0);
                assert!(output.contains(&from), "{engine} {hops}: {output}");
            }
        }
        let shown = status(&place.world);
        let open = shown["nat"]["udp"]["opened"].as_u64();
        assert_eq!(open, Some(4), "{shown}");
        place.down();
    }
}

#[test]
fn the_network_outside_keeps_its_words() {
    let Some(place) = place() else { return };
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        for (target, expected) in [
            (OUTSIDE[0], (OUTSIDE[0], [3, 3])),
            (OUTSIDE[1], (OUTSIDE[1], [1, 4])),
            (UNREACHABLE, (GATEWAY[0], [3, 1])),
            (PROHIBITED[0], (GATEWAY[0], [3, 13])),
            (PROHIBITED[1], (GATEWAY[1], [1, 1])),
        ] {
            assert_eq!(
                probe(&place, target, 64),
                told(expected),
                "{engine} {target}"
            );
        }
        place.down();
    }
}

#[test]
fn a_peer_hears_how_long_its_datagrams_may_be() {
    let Some(place) = place() else { return };
    let [server, peer] = place.peers();
    for host in BEYOND {
        echo_datagrams(server, (host, ECHO));
    }
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        let narrow = |mtu: usize| {
            for (place_of, link) in [(&place.world.net, "wan"), (server, "eth0")] {
                let set = format!("ip link set {link} mtu {mtu}");
                place.world.shell_at(place_of, &set);
            }
        };
        narrow(NARROW);
        for host in BEYOND {
            let socket = socket(peer, host, ECHO);
            socket.send(&[7; NARROW]).unwrap();
            let knows = || {
                let route = place.world.shell_at(peer, &format!("ip route get {host}"));
                route.contains(&format!("mtu {NARROW}")).then_some(())
            };
            assert!(eventually(DEADLINE, knows).is_some(), "{engine} {host}");
            // From now on, the peer makes fragments.
            // The socket has been told as well.
            let _ = socket.take_error();
            socket.send(&[7; NARROW]).unwrap();
            let received = socket.recv(&mut [0; NARROW]);
            assert_eq!(
                received.map_err(|it| format!("{engine} {host}: {it}")),
                Ok(NARROW)
            );
        }
        narrow(1_500);
        for namespace in [peer, &place.world.client] {
            let flush = "ip route flush cache; ip -6 route flush cache";
            place.world.shell_at(namespace, flush);
        }
        place.down();
    }
}

type Told = (IpAddr, [u8; 2]);

fn told((from, kind): (&str, [u8; 2])) -> Told {
    (from.parse().unwrap(), kind)
}

/// Sends a datagram with a hop limit; returns the sender, type and code of the ICMP message that reports it.
fn probe(place: &Place, target: &str, hops: u32) -> Told {
    let peer = place.peers()[1];
    let target: IpAddr = target.parse().unwrap();
    let (domain, protocol, any) = match target {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, "0.0.0.0:0"),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, "[::]:0"),
    };
    let open = || -> io::Result<_> {
        let raw = Socket::new(domain, Type::RAW, Some(protocol))?;
        // Its calls are the same.
        Ok((UdpSocket::from(raw), UdpSocket::bind(any)?))
    };
    let (raw, socket) = peer.run(open).unwrap().unwrap();
    match target {
        IpAddr::V4(_) => socket.set_ttl(hops).unwrap(),
        IpAddr::V6(_) => SockRef::from(&socket).set_unicast_hops_v6(hops).unwrap(),
    }
    raw.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let port = FIRST_PORT + hops as u16;
    let ports = [socket.local_addr().unwrap().port(), port].map(u16::to_be_bytes);
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        // Routers say such things once a second at least.
        socket.send_to(b"probe", (target, port)).unwrap();
        let mut buffer = [0; 1_500];
        while let Ok((length, from)) = raw.recv_from(&mut buffer) {
            let bytes = &buffer[..length];
            let (message, quoted) = match target {
                IpAddr::V4(_) => (&bytes[20..], 8 + 20),
                IpAddr::V6(_) => (bytes, 8 + 40),
            };
            if message.get(quoted..quoted + 4) == Some(&ports.concat()[..]) {
                return (from.ip(), [message[0], message[1]]);
            }
        }
    }
    panic!("nobody says anything about {target} after {hops} hops");
}
