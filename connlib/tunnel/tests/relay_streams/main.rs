//! A TURN server by TCP and TLS is the only way to a peer, without root.

#[path = "../common/mod.rs"]
mod common;
mod hostile;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use common::*;
use convoy_carrier::Roots;
use convoy_proto::config::{
    AllowedIpUpdate, Authorities, DeviceUpdate, Password, PeerUpdate, Prefix, Relay, RelayState,
    RelayTransport as By,
};
use convoy_tunnel::Options;
use convoy_turn_server::{RelayIdentity, RelayOptions, RelayServer, RelayTransport};

/// Far longer than the six seconds until a relay is tried.
const LONG: Duration = Duration::from_secs(60);
/// The peer's address (RFC 5737), at which nobody answers but through the server.
const BLOCKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[test]
fn packets_arrive_in_order_over_tcp() {
    packets_arrive_in_order(RelayTransport::Tcp);
}

#[test]
fn packets_arrive_in_order_over_tls() {
    let identity = RelayIdentity::new("127.0.0.1").unwrap();
    packets_arrive_in_order(RelayTransport::Tls(identity));
}

#[test]
fn a_server_that_ends_and_comes_back_is_found_again() {
    let options = options(RelayTransport::Tcp);
    let server = RelayServer::start(HERE, &options).expect("a server");
    let address = server.address;
    let (a, b) = ends(relay(address, &options));
    reaches(&a, &b, 1);
    drop(server);
    eventually(|| !matches!(state(&a), RelayState::Ready(_)));
    let server = RelayServer::start(address, &options).expect("a server");
    reaches(&a, &b, 2);
    assert!(server.relayed() > 0);
}

#[test]
fn a_certificate_for_another_name_is_told_and_nothing_passes() {
    let identity = RelayIdentity::new("other.test").unwrap();
    let options = options(RelayTransport::Tls(identity));
    let server = RelayServer::start(HERE, &options).expect("a server");
    let (a, b) = ends(relay(server.address, &options));
    let why = "the certificate of 127.0.0.1 is not valid for that name";
    let deadline = Instant::now() + LONG;
    while state(&a) != RelayState::Failed(why.to_owned()) {
        assert!(Instant::now() < deadline, "{:?}", state(&a));
        a.send(&udp(a.inner, b.inner, b"secret"));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.relayed(), 0);
}

#[test]
fn more_packets_than_a_stream_takes_do_it_no_harm() {
    let options = options(RelayTransport::Tcp);
    let server = RelayServer::start(HERE, &options).expect("a server");
    let (a, b) = ends(relay(server.address, &options));
    reaches(&a, &b, 1);
    for n in 0..4_000u32 {
        a.send(&udp(a.inner, b.inner, &[n as u8; 1_300]));
    }
    reaches(&a, &b, 2);
    assert!(matches!(state(&a), RelayState::Ready(_)));
}

#[test]
fn a_server_that_nobody_needs_is_not_connected_to() {
    let options = options(RelayTransport::Tcp);
    let server = RelayServer::start(HERE, &options).expect("a server");
    let (a, b) = (
        End::start(1, &Options::default()),
        End::start(2, &Options::default()),
    );
    a.add_peer(&b);
    b.add_peer(&a);
    set_relays(&a, vec![relay(server.address, &options)]);
    a.send(&udp(a.inner, b.inner, b"directly"));
    assert_eq!(b.receive_payload(), b"directly");
    assert_eq!(state(&a), RelayState::Idle);
}

fn packets_arrive_in_order(transport: RelayTransport) {
    let options = options(transport);
    let server = RelayServer::start(HERE, &options).expect("a server");
    let (a, b) = ends(relay(server.address, &options));
    reaches(&a, &b, 1);
    // Fewer than any queue on the way takes, sockets of the server included.
    for (from, to) in [(&a, &b), (&b, &a)] {
        for n in 0..40u32 {
            let mut payload = vec![n as u8; 4 + (n as usize * 37) % 1300];
            payload[..4].copy_from_slice(&n.to_be_bytes());
            from.send(&udp(from.inner, to.inner, &payload));
        }
        for n in 0..40u32 {
            let payload = next_but_first(to);
            assert_eq!(payload[..4], n.to_be_bytes());
        }
    }
    assert!(server.relayed() >= 80);
    assert!(matches!(state(&a), RelayState::Ready(_)));
    let peer = &a.snapshot().peers[0];
    let by = peer.relay.map(|it| (it.server, it.transport));
    assert_eq!(
        by,
        Some((server.address, relay(server.address, &options).transport))
    );
    assert_eq!(peer.endpoint.map(|it| it.ip()), Some(BLOCKED.into()));
}

/// Lets `b` get a packet of this number, whatever is lost before.
fn reaches(a: &End, b: &End, number: u8) {
    let deadline = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < deadline, "{:?}", state(a));
        a.send(&udp(a.inner, b.inner, &[FIRST, number]));
        if let Some(raw) = b.kernel.receive(Duration::from_millis(50)) {
            let found = raw[VNET + 28..] == [FIRST, number];
            b.kernel.recycle(raw);
            if found {
                return;
            }
        }
    }
}

/// The first byte of packets of [`reaches`], of which further ones may be on their way.
const FIRST: u8 = 0xFF;

fn next_but_first(end: &End) -> Vec<u8> {
    loop {
        let payload = end.receive_payload();
        if payload[0] != FIRST {
            return payload;
        }
    }
}

fn state(a: &End) -> RelayState {
    a.snapshot().relays[0].state.clone()
}

/// Two tunnels, of which `a` reaches the other by `relay` alone.
fn ends(relay: Relay) -> (End, End) {
    ends_by(vec![relay])
}

/// Two tunnels, of which `a` reaches the other by one of `relays` alone.
fn ends_by(relays: Vec<Relay>) -> (End, End) {
    let (a, b) = (
        End::start(1, &Options::default()),
        End::start(2, &Options::default()),
    );
    b.add_peer(&a);
    let mut update = PeerUpdate::new(b.public_key());
    update.endpoint = Some((BLOCKED, b.snapshot().listen_port).into());
    update.allowed_ips = vec![AllowedIpUpdate {
        network: Prefix::network_of(b.inner.into(), 32).expect("a prefix"),
        remove: false,
    }];
    let update = DeviceUpdate {
        peers: vec![update],
        ..DeviceUpdate::default()
    };
    a.tunnel.apply(update).expect("a peer");
    set_relays(&a, relays);
    (a, b)
}

fn set_relays(a: &End, relays: Vec<Relay>) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().expect("a runtime");
    let set = runtime.block_on(a.tunnel.set_relays(relays));
    set.expect("the tunnel runs");
}

fn options(transport: RelayTransport) -> RelayOptions {
    RelayOptions {
        transport,
        user: ("alice".to_owned(), "secret".to_owned()),
        alias: Some((BLOCKED.into(), Ipv4Addr::LOCALHOST.into())),
        other: None,
    }
}

fn relay(server: SocketAddr, options: &RelayOptions) -> Relay {
    let (transport, authorities) = match &options.transport {
        RelayTransport::Udp => (By::Udp, Authorities::default()),
        RelayTransport::Tcp => (By::Tcp, Authorities::default()),
        RelayTransport::Tls(identity) => {
            let roots = Roots::from_pem(identity.authority.as_bytes()).expect("an authority");
            (By::Tls, Authorities(Arc::from(roots.to_bytes())))
        }
    };
    Relay {
        host: "127.0.0.1".to_owned(),
        server,
        transport,
        user: options.user.0.clone(),
        password: Password(options.user.1.clone()),
        authorities,
    }
}
