//! Ports outside, as STUN servers and strangers see them.

use std::net::UdpSocket;

use convoy_lab::Namespace;

use super::*;
use crate::traffic;

/// More addresses of the hosts outside.
const SECOND: [&str; 2] = ["198.18.0.2", "2001:db8:18::2"];
/// The port of STUN servers, and another one.
const PORTS: [u16; 2] = [3_478, 3_479];

#[test]
fn all_targets_see_one_port_of_a_peers_socket_and_strangers_are_refused() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    let [ipv4, ipv6] = SECOND;
    let more = format!("ip addr add {ipv4} dev lo; ip addr add {ipv6} dev lo nodad");
    place.world.shell_at(&place.world.net, &more);
    place.world.shell(
        "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit",
    );
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        for family in 0..2 {
            targets_see_one_port(&place, [OUTSIDE[family], SECOND[family]]);
        }
        place.down();
    }
}

fn targets_see_one_port(place: &Place, hosts: [&str; 2]) {
    let net = &place.world.net;
    let targets = [
        (hosts[0], PORTS[0]),
        (hosts[0], PORTS[1]),
        (hosts[1], PORTS[0]),
    ];
    let servers = targets.map(|(host, port)| bound(net, host, port));
    let any = if hosts[0].contains(':') {
        "::"
    } else {
        "0.0.0.0"
    };
    for peer in place.peers() {
        let sockets = [bound(peer, any, 0), bound(peer, any, 0)];
        let ports = sockets.each_ref().map(|socket| {
            let seen = servers.each_ref().map(|server| {
                let to = server.local_addr().unwrap();
                socket.send_to(b"where am I?", to).unwrap();
                server.recv_from(&mut [0; 20]).unwrap().1
            });
            assert_eq!(seen, [seen[0]; 3]);
            // Another port of a target that the peer has not asked.
            let stranger = bound(net, hosts[1], PORTS[1]);
            stranger.connect(seen[0]).unwrap();
            stranger.send(b"spam").unwrap();
            let refused = stranger.recv(&mut [0; 4]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            for server in &servers {
                server.send_to(b"answer", seen[0]).unwrap();
                let mut answer = [0; 8];
                let (length, from) = socket.recv_from(&mut answer).unwrap();
                assert_eq!(&answer[..length], b"answer");
                assert_eq!(from, server.local_addr().unwrap());
            }
            seen[0].port()
        });
        assert_ne!(ports[0], ports[1]);
    }
}

fn bound(place: &Namespace, host: &str, port: u16) -> UdpSocket {
    let at = (host.parse::<IpAddr>().unwrap(), port);
    let socket = traffic::bound(place, || UdpSocket::bind(at));
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}
