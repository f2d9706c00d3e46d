//! Routers translate and filter as their options say.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use convoy_lab::{Lab, Namespace};

use super::{Joined, Nat, Router, RouterOptions};
use crate::scene::lab;

/// Time limits for a packet that is expected to arrive, and for one that is not.
const ARRIVES: Duration = Duration::from_secs(5);
const STAYS_AWAY: Duration = Duration::from_millis(200);

#[test]
fn a_home_maps_a_source_to_one_address_and_lets_in_only_replies() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let home = internet.router(&lab, "home", RouterOptions::default());
    let (host, _) = joined(&lab, &home, "host");
    let [first, second, stranger] = ["first", "second", "stranger"].map(|label| {
        let (namespace, joined) = joined(&lab, &internet, label);
        socket(&namespace, joined.v4.into(), 7000)
    });
    let inside = socket(&host, "0.0.0.0".parse().unwrap(), 5000);
    let seen = [&first, &second].map(|server| seen_by(&inside, server));
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].ip(), home.outside.unwrap().v4);
    assert!(hears(&inside, &first, seen[0]));
    stays_away(&inside, &stranger, seen[0]);
    // Its early packet has not taken the port away.
    assert_eq!(seen_by(&inside, &stranger), seen[0]);
    assert!(hears(&inside, &stranger, seen[0]));
}

#[test]
fn two_homes_meet_if_both_send() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let (server, at) = joined(&lab, &internet, "server");
    let server = socket(&server, at.v4.into(), 7000);
    let [a, b] = ["a", "b"].map(|label| {
        let home = internet.router(&lab, label, RouterOptions::default());
        let (host, _) = joined(&lab, &home, "host");
        socket(&host, "0.0.0.0".parse().unwrap(), 5000)
    });
    let [outer_a, outer_b] = [&a, &b].map(|host| seen_by(host, &server));
    stays_away(&b, &a, outer_b);
    assert!(hears(&a, &b, outer_a));
    assert!(hears(&b, &a, outer_b));
}

#[test]
fn a_hard_nat_maps_each_flow_to_a_port_of_its_own() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let options = RouterOptions {
        nat: Nat::Hard,
        ..RouterOptions::default()
    };
    let hard = internet.router(&lab, "hard", options);
    let (host, _) = joined(&lab, &hard, "host");
    let inside = socket(&host, "0.0.0.0".parse().unwrap(), 5000);
    let (server, at) = joined(&lab, &internet, "server");
    let ports = [7000, 7001, 7002].map(|port| {
        let server = socket(&server, at.v4.into(), port);
        seen_by(&inside, &server).port()
    });
    assert!(ports[0] != ports[1] || ports[1] != ports[2], "{ports:?}");
}

#[test]
fn a_router_behind_a_router_maps_twice() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let of_carrier = RouterOptions {
        inside: [100, 64],
        ..RouterOptions::default()
    };
    let carrier = internet.router(&lab, "carrier", of_carrier);
    let home = carrier.router(&lab, "home", RouterOptions::default());
    let (host, _) = joined(&lab, &home, "host");
    let inside = socket(&host, "0.0.0.0".parse().unwrap(), 5000);
    let seen = ["first", "second"].map(|label| {
        let (server, at) = joined(&lab, &internet, label);
        let server = socket(&server, at.v4.into(), 7000);
        let seen = seen_by(&inside, &server);
        assert!(hears(&inside, &server, seen));
        seen
    });
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].ip(), carrier.outside.unwrap().v4);
}

#[test]
fn hosts_of_one_home_reach_each_other_by_its_address_with_hairpin_only() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let (server, at) = joined(&lab, &internet, "server");
    let server = socket(&server, at.v4.into(), 7000);
    for hairpin in [false, true] {
        let options = RouterOptions {
            hairpin,
            ..RouterOptions::default()
        };
        let home = internet.router(&lab, "home", options);
        let [a, b] = [5000, 5001].map(|port| {
            let (host, joined) = joined(&lab, &home, "host");
            (socket(&host, "0.0.0.0".parse().unwrap(), port), joined.v4)
        });
        let outer = [&a.0, &b.0].map(|host| seen_by(host, &server));
        let inner = SocketAddr::new(b.1.into(), 5001);
        assert!(hears(&b.0, &a.0, inner));
        match hairpin {
            true => assert_eq!(source_of(&b.0, &a.0, outer[1]), Some(outer[0])),
            false => stays_away(&b.0, &a.0, outer[1]),
        }
    }
}

#[test]
fn ipv6_passes_a_firewall_untranslated() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let options = RouterOptions {
        ipv6: true,
        ..RouterOptions::default()
    };
    let home = internet.router(&lab, "home", options);
    let (host, own) = joined(&lab, &home, "host");
    let (server, at) = joined(&lab, &internet, "server");
    let server = socket(&server, at.v6.unwrap().into(), 7000);
    let own = SocketAddr::new(own.v6.unwrap().into(), 5000);
    let inside = socket(&host, own.ip(), own.port());
    // Neighbours know each other then.
    let other = socket(&host, own.ip(), 5001);
    let outer = seen_by(&other, &server);
    assert!(hears(&other, &server, outer));
    stays_away(&inside, &server, own);
    assert_eq!(seen_by(&inside, &server), own);
    assert!(hears(&inside, &server, own));
}

#[test]
fn a_cut_ends_flows_until_it_is_mended() {
    let Some((_turn, lab)) = lab(&["nft"]) else {
        return;
    };
    let internet = Router::internet(&lab);
    let home = internet.router(&lab, "home", RouterOptions::default());
    let (host, _) = joined(&lab, &home, "host");
    let inside = socket(&host, "0.0.0.0".parse().unwrap(), 5000);
    let (server, at) = joined(&lab, &internet, "server");
    let server = socket(&server, at.v4.into(), 7000);
    let outer = seen_by(&inside, &server);
    home.cut(at.v4.into());
    stays_away(&server, &inside, server.local_addr().unwrap());
    stays_away(&inside, &server, outer);
    home.mend();
    assert_eq!(seen_by(&inside, &server), outer);
    assert!(hears(&inside, &server, outer));
}

/// A new host of a router.
fn joined(lab: &Lab, router: &Router, label: &str) -> (Namespace, Joined) {
    let namespace = lab.namespace(label).unwrap();
    let joined = router.host(&namespace, "eth0");
    (namespace, joined)
}

fn socket(namespace: &Namespace, address: IpAddr, port: u16) -> UdpSocket {
    let bind = || UdpSocket::bind((address, port));
    namespace.run(bind).unwrap().unwrap()
}

/// The address at which `server` sees `from`.
fn seen_by(from: &UdpSocket, server: &UdpSocket) -> SocketAddr {
    let to = server.local_addr().unwrap();
    source_of(server, from, to).expect("nothing arrives")
}

/// Returns whether a packet from `from` to `to` reaches `by`.
fn hears(by: &UdpSocket, from: &UdpSocket, to: SocketAddr) -> bool {
    source_of(by, from, to).is_some()
}

/// Sends a packet from `from` to `to`; returns its source if it reaches `by`.
fn source_of(by: &UdpSocket, from: &UdpSocket, to: SocketAddr) -> Option<SocketAddr> {
    thread::scope(|scope| {
        let arrival = scope.spawn(|| arrival(by, ARRIVES));
        // The first packet may wait for a neighbour's address, but is not lost.
        from.send_to(b"hello", to).unwrap();
        arrival.join().unwrap()
    })
}

fn stays_away(by: &UdpSocket, from: &UdpSocket, to: SocketAddr) {
    from.send_to(b"hello", to).unwrap();
    assert_eq!(arrival(by, STAYS_AWAY), None);
}

fn arrival(at: &UdpSocket, time: Duration) -> Option<SocketAddr> {
    at.set_read_timeout(Some(time)).unwrap();
    match at.recv_from(&mut [0; 16]) {
        Ok((_, from)) => Some(from),
        Err(error) => {
            let is_silence = matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            );
            assert!(is_silence, "{error}");
            None
        }
    }
}
