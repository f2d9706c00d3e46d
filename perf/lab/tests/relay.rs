//! A relay between two sockets, as between two hosts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use convoy_lab::{
    Lab, eventually,
    relay::{Direction, Impairments, Relay, Side},
    require_root_lab,
};

const DEADLINE: Duration = Duration::from_secs(20);
const LEFT: SocketAddr = address(1);
const RIGHT: SocketAddr = address(2);
const TOWARDS_LEFT: SocketAddr = address(3);
const TOWARDS_RIGHT: SocketAddr = address(4);

#[test]
fn a_relay_carries_both_ways_and_counts() {
    if !require_root_lab("a_relay_carries_both_ways_and_counts") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("relay").unwrap();
    let [left, right] = [LEFT, RIGHT].map(|address| {
        let socket = namespace.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket
    });
    let impairments = Impairments {
        drop: 0.5,
        ..Impairments::default()
    };
    let sides = [(TOWARDS_LEFT, LEFT), (TOWARDS_RIGHT, RIGHT)];
    let [to_left, to_right] = sides.map(|(local, end)| Side { local, end });
    let relay = Relay::start(&namespace, to_left, to_right, 11, &impairments).unwrap();

    for number in 0..100 {
        left.send_to(&[number], TOWARDS_LEFT).unwrap();
    }
    let tally = || {
        let tally = relay.tally(Direction::ToRight);
        (tally.received == 100 && tally.sent + tally.dropped == 100).then_some(tally)
    };
    let tally = eventually(DEADLINE, tally).unwrap();
    let heard: Vec<_> = (0..tally.sent)
        .map(|_| hear(&right, TOWARDS_RIGHT))
        .collect();
    assert!((20..80).contains(&tally.dropped), "{tally:?}");
    assert!(heard.is_sorted(), "{heard:?}");

    relay.impair(&Impairments::default());
    for number in 0..100 {
        right.send_to(&[number], TOWARDS_RIGHT).unwrap();
        assert_eq!(hear(&left, TOWARDS_LEFT), number);
    }
    // A stranger is not carried.
    let stranger = namespace
        .run(|| UdpSocket::bind(address(9)))
        .unwrap()
        .unwrap();
    stranger.send_to(&[255], TOWARDS_LEFT).unwrap();
    left.send_to(&[1], TOWARDS_LEFT).unwrap();
    assert_eq!(hear(&right, TOWARDS_RIGHT), 1);
}

fn hear(socket: &UdpSocket, from: SocketAddr) -> u8 {
    let mut datagram = [0; 2];
    let heard = socket.recv_from(&mut datagram).unwrap();
    assert_eq!(heard, (1, from));
    datagram[0]
}

const fn address(n: u8) -> SocketAddr {
    SocketAddr::V4(std::net::SocketAddrV4::new(
        std::net::Ipv4Addr::new(127, 0, 0, n),
        7_000,
    ))
}
