//! A link that is set down and up: sockets are there, and sessions live, only while it is up.

mod common;

use std::net::{Ipv4Addr, UdpSocket};

use common::*;
use convoy_proto::{config::DeviceUpdate, counters::DropReason};
use convoy_tunnel::{ApplyError, Options};

#[test]
fn a_link_that_comes_up_again_has_its_port_and_carries_packets() {
    let (a, b) = connected(&Options::default());
    let port = a.snapshot().listen_port;
    a.tunnel.set_link(false).expect("down");
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    a.send(&udp(a.inner, b.inner, b"kept: it may be ahead of the word"));
    a.tunnel.set_link(true).expect("up");
    assert_eq!(a.snapshot().listen_port, port);
    a.send(&udp(a.inner, b.inner, b"behind it"));
    assert_eq!(b.receive_payload(), b"kept: it may be ahead of the word");
    assert_eq!(b.receive_payload(), b"behind it");
}

#[test]
fn what_is_read_from_a_link_that_is_down_does_not_pile_up() {
    let (a, b) = connected(&Options::default());
    a.tunnel.set_link(false).expect("down");
    for _ in 0..2000 {
        a.send(&udp(a.inner, b.inner, b"to nobody"));
    }
    let dropped = || a.snapshot().counters.drops.of(DropReason::OutboundLinkDown);
    // One batch at most waits for the link.
    eventually(|| dropped() >= 1950);
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
    set_port(&end, port).expect("nothing is bound yet");
    assert_eq!(end.snapshot().listen_port, port);

    let refused = end.tunnel.set_link(true).expect_err("the port is taken");
    assert!(matches!(refused, ApplyError::Sockets { .. }), "{refused}");
    assert!(set_port(&end, port).is_err());
    drop(taken);
    set_port(&end, port).expect("the port is free now");
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect_err("the tunnel has it");
}

fn set_port(end: &End, port: u16) -> Result<(), ApplyError> {
    end.tunnel.apply(DeviceUpdate {
        listen_port: Some(port),
        ..DeviceUpdate::default()
    })
}
