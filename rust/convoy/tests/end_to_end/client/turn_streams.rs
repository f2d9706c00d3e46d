//! A client whose firewall lets nothing but TCP to port 443 through reaches a stock server by a TURN server there.
//!
//! ```text
//!  client ── nftables: TCP to :443 alone ── net, with the TURN server 203.0.113.254:443 ── server, wireguard-go
//! ```

use std::{net::SocketAddr, time::Duration};

use convoy_lab::eventually;
use convoy_turn_server::{RelayIdentity, RelayServer, RelayTransport};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::{
    capture::Seen,
    turn::{block, carries_large_packets, is_shown, only_passes, path_becomes, turn_line},
    world::{BEHIND, EVERYTHING, World},
};
use crate::{scene::DEADLINE, turn_server::start_turn};

mod coturn;

const HOST: &str = "203.0.113.254";
const SERVER: &str = "203.0.113.254:443";
const TCP: &str = "turn:203.0.113.254:443?transport=tcp";
const TLS: &str = "turns:203.0.113.254:443";
/// The file of the authorities.
const CA: &str = "CaFile = own ca.pem";

#[test]
fn where_no_udp_passes_a_stock_server_is_reached_by_tcp_to_a_turn_server() {
    let Some(world) = blocked() else {
        return;
    };
    let server = start_turn(&world.net, address(), RelayTransport::Tcp);
    configure(&world, TCP, "");
    carries_all(&world, "tcp");
    assert!(server.relayed() > 0);
}

#[test]
fn where_no_udp_passes_a_stock_server_is_reached_by_tls_to_a_turn_server() {
    let Some(world) = blocked() else {
        return;
    };
    let server = start_tls(&world, HOST);
    configure(&world, TLS, CA);
    carries_all(&world, "tls");
    assert!(server.relayed() > 0);
}

#[test]
fn a_closed_kill_switch_lets_nothing_but_the_stream_to_the_turn_server_out() {
    let Some(world) = blocked() else {
        return;
    };
    let _server = start_tls(&world, HOST);
    let turn = turn_line(TLS, CA);
    world.configure(&format!("{turn}\n#convoy: KillSwitch = on"), EVERYTHING);
    let is_stream = |it: &Seen| it.to.to_string() == HOST && it.tcp == Some(443);
    let try_others = || {
        assert!(!world.answers(HOST));
        assert!(!connects(&world));
    };
    only_passes(&world, SERVER, is_stream, try_others);
}

#[test]
fn a_certificate_for_another_name_shows_in_the_status_and_nothing_passes() {
    let Some(world) = blocked() else {
        return;
    };
    let server = start_tls(&world, "turn.example.org");
    configure(&world, TLS, CA);
    world.up();
    let expected = format!("the certificate of {HOST} is not valid for that name");
    fails_by(&world, &expected);
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    let words: Vec<_> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(&expected), "{text}");
    assert!(!world.answers(BEHIND[0]));
    assert_eq!(server.relayed(), 0);
    world.down();
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_until_a_reload_names_its_authority() {
    let Some(world) = blocked() else {
        return;
    };
    let server = start_tls(&world, HOST);
    configure(&world, TLS, "");
    world.up();
    let expected = format!("the certificate of {HOST} is signed by no authority");
    fails_by(&world, &expected);
    assert_eq!(server.relayed(), 0);
    configure(&world, TLS, CA);
    world.convoy(&["reload", "wg0"]).succeeds();
    path_becomes(&world, SERVER.into());
    world.reaches(BEHIND[0]);
    world.down();
}

#[test]
fn a_damaged_file_of_authorities_is_refused_at_its_place_and_changes_nothing() {
    let Some(world) = blocked() else {
        return;
    };
    let _server = start_tls(&world, HOST);
    let authority = world.read("wireguard/own ca.pem");
    configure(&world, TLS, CA);
    let before = world.dump();
    let is_refused = |command: &str| {
        for (pem, expected) in [
            ("", "expected a certificate in PEM form"),
            (&authority[..authority.len() / 2], "is damaged"),
        ] {
            world.write("wireguard/own ca.pem", pem);
            let said = world.convoy(&[command, "wg0"]).ends_with(1).stderr;
            assert!(said.contains(expected), "{command}: {said}");
            assert!(said.contains("wg0.conf:4:"), "{command}: {said}");
        }
        world.write("wireguard/own ca.pem", &authority);
    };
    is_refused("check");
    is_refused("up");
    world.is_left_as(&before);
    world.up();
    path_becomes(&world, SERVER.into());
    is_refused("reload");
    world.reaches(BEHIND[0]);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_turn_server_that_restarts_is_connected_to_again() {
    let Some(world) = blocked() else {
        return;
    };
    let identity = identity(&world, HOST);
    let start = || {
        let transport = RelayTransport::Tls(identity.clone());
        start_turn(&world.net, address(), transport)
    };
    let server = start();
    configure(&world, TLS, CA);
    world.up();
    path_becomes(&world, SERVER.into());
    world.reaches(BEHIND[0]);
    drop(server);
    let _server = start();
    let answers = || world.answers(BEHIND[0]).then_some(());
    let status = || world.status();
    assert!(eventually(6 * DEADLINE, answers).is_some(), "{}", status());
    world.down();
}

/// A client whose firewall lets TCP to one port through.
fn blocked() -> Option<World> {
    let world = World::new()?;
    let rules = [
        "out oifname eth0 meta l4proto udp",
        "out oifname eth0 tcp dport != 443",
        "in iifname eth0 meta l4proto udp",
        "in iifname eth0 tcp sport != 443",
    ];
    block(&world, &rules);
    Some(world)
}

fn start_tls(world: &World, name: &str) -> RelayServer {
    let transport = RelayTransport::Tls(identity(world, name));
    start_turn(&world.net, address(), transport)
}

/// A certificate for `name`, whose authority the client has in a file.
fn identity(world: &World, name: &str) -> RelayIdentity {
    let identity = RelayIdentity::new(name).unwrap();
    world.write("wireguard/own ca.pem", &identity.authority);
    identity
}

fn configure(world: &World, uri: &str, ca: &str) {
    world.configure(&turn_line(uri, ca), EVERYTHING);
}

fn address() -> SocketAddr {
    SERVER.parse().unwrap()
}

/// Brings the tunnel up and down; between, data of all sizes takes the server.
fn carries_all(world: &World, transport: &str) {
    let before = world.dump();
    world.up();
    path_becomes(world, SERVER.into());
    world.reaches_all_behind();
    carries_large_packets(world);
    is_shown(world, SERVER, transport);
    world.down();
    world.is_left_as(&before);
}

/// Waits until the server counts as failed for this reason.
fn fails_by(world: &World, expected: &str) {
    let mut last = Value::Null;
    let is_so = || {
        // A packet begins a handshake, if none is under way.
        world.answers(BEHIND[0]);
        last = world.status()["relays"][0].clone();
        let problem = last["problem"].as_str().unwrap_or_default();
        (last["state"] == "failed" && problem.contains(expected)).then_some(())
    };
    assert!(
        eventually(3 * DEADLINE, is_so).is_some(),
        "the relay has not failed by `{expected}`: {last}"
    );
}

/// Returns whether a program other than the tunnel reaches the TURN server, past all routes.
fn connects(world: &World) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind_device(Some(b"eth0")).unwrap();
        socket.connect_timeout(&address().into(), Duration::from_secs(2))
    };
    world.client.run(connect).unwrap().is_ok()
}
