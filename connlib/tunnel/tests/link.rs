//! A link that is set down and up: sockets and sessions exist only while it is up.

mod common;

use std::net::{Ipv4Addr, UdpSocket};

use common::*;
use convoy_proto::config::DeviceUpdate;
use convoy_tunnel::{ApplyError, Options};

#[test]
fn a_link_that_comes_up_again_has_its_port_and_carries_packets() {
    let (a, b) = connected(&Options::default());
    let port = a.snapshot().listen_port;
    a.tunnel.set_link(false).expect("down");
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    a.send(&udp(a.inner, b.inner, b"ahead of the word"));
    a.tunnel.set_link(true).expect("up");
    assert_eq!(a.snapshot().listen_port, port);
    a.send(&udp(a.inner, b.inner, b"behind it"));
    assert_eq!(b.receive_payload(), b"ahead of the word");
    assert_eq!(b.receive_payload(), b"behind it");
}

#[test]
fn packets_ahead_of_the_word_that_the_link_is_up_wait_for_it() {
    let (a, b) = connected(&Options::default());
    a.tunnel.set_link(false).expect("down");
    for n in 0..200u8 {
        a.send(&udp(a.inner, b.inner, &[n]));
    }
    a.tunnel.set_link(true).expect("up");
    // 200 are more than a handshake may hold: the oldest are dropped, and 128 remain.
    assert_eq!(
        std::iter::from_fn(|| Some(b.receive_payload()))
            .take(128)
            .last(),
        Some(vec![199])
    );
}

#[test]
fn a_tunnel_that_starts_with_its_link_down_binds_when_it_comes_up() {
    let options = Options {
        is_up: false,
        ..Options::default()
    };
    let end = End::start(1, &options);
    assert_eq!(end.snapshot().listen_port, 0);
    let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    set_port(&end, port).expect_err("the port is taken");
    drop(taken);
    set_port(&end, port).expect("the port is free now");
    assert_eq!(end.snapshot().listen_port, port);

    let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("nothing is bound yet");
    let refused = end.tunnel.set_link(true).expect_err("the port is taken");
    assert!(matches!(refused, ApplyError::Sockets { .. }), "{refused}");
    set_port(&end, port).expect_err("it still is");
    drop(taken);
    end.tunnel.set_link(true).expect("up");
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect_err("the tunnel has it");
}

fn set_port(end: &End, port: u16) -> Result<(), ApplyError> {
    end.tunnel.apply(DeviceUpdate {
        listen_port: Some(port),
        ..DeviceUpdate::default()
    })
}
