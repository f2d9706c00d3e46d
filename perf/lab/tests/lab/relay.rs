//! A relay between two sockets, as between two hosts.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use convoy_lab::relay::{Direction, Impairments, Relay, Side};
use convoy_lab::{Lab, eventually, require_root_lab};

use crate::DEADLINE;

#[test]
fn a_relay_carries_both_ways_and_counts() {
    if !require_root_lab("a_relay_carries_both_ways_and_counts") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("relay").unwrap();
    let bind = |address: SocketAddr| {
        let socket = namespace.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket
    };
    let address = |n| SocketAddr::from((Ipv4Addr::new(127, 0, 0, n), 7_000));
    let (towards_left, towards_right) = (address(3), address(4));
    let (left, right) = (bind(address(1)), bind(address(2)));
    let side = |local, end| Side { local, end };
    let sides = (
        side(towards_left, address(1)),
        side(towards_right, address(2)),
    );
    let impairments = Impairments {
        drop: 0.5,
        ..Impairments::default()
    };
    let relay = Relay::start(&namespace, sides.0, sides.1, 11, &impairments).unwrap();

    for number in 0..100 {
        left.send_to(&[number], towards_left).unwrap();
    }
    let tally = || {
        let tally = relay.tally(Direction::ToRight);
        (tally.received == 100 && tally.sent + tally.dropped == 100).then_some(tally)
    };
    let tally = eventually(DEADLINE, tally).unwrap();
    let heard: Vec<_> = (0..tally.sent)
        .map(|_| hear(&right, towards_right))
        .collect();
    assert!((20..80).contains(&tally.dropped), "{tally:?}");
    assert!(heard.is_sorted(), "{heard:?}");

    relay.impair(&Impairments::default());
    for number in 0..100 {
        right.send_to(&[number], towards_right).unwrap();
        assert_eq!(hear(&left, towards_left), number);
    }
    // A stranger is not carried.
    bind(address(9)).send_to(&[255], towards_left).unwrap();
    left.send_to(&[1], towards_left).unwrap();
    assert_eq!(hear(&right, towards_right), 1);
}

fn hear(socket: &UdpSocket, from: SocketAddr) -> u8 {
    let mut datagram = [0; 2];
    let heard = socket.recv_from(&mut datagram).unwrap();
    assert_eq!(heard, (1, from));
    datagram[0]
}
