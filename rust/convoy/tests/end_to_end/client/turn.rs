//! A client whose firewall drops all UDP but that to a TURN server reaches a stock server through it.
//!
//! ```text
//!  client ── nftables: UDP only to :3478 ── net, with the TURN server 203.0.113.254:3478 ── server, wireguard-go
//! ```

mod servers;

use std::{net::SocketAddr, sync::atomic::AtomicU64};

use convoy_lab::eventually;
use convoy_turn_server::{RelayServer, RelayTransport};
use serde_json::Value;

use super::{
    capture::{Capture, Seen},
    events::Events,
    process::crash,
    secrets,
    world::{BEHIND, EVERYTHING, World},
};
use crate::{
    scene::DEADLINE,
    traffic::tcp_between,
    turn_server::{PASSWORD, USER, start_turn},
};

const SERVER: &str = "203.0.113.254:3478";
const PEER: &str = "203.0.113.1:51820";
const BYTES: u64 = 2_000_000;
/// All UDP but that of TURN servers is dropped.
const UDP_RULES: [&str; 2] = [
    "out oifname eth0 udp dport != 3478-3479",
    "in iifname eth0 udp sport != 3478-3479",
];

#[test]
fn behind_blocked_udp_a_stock_server_is_reached_by_turn_and_directly_once_it_passes() {
    let Some((world, server)) = blocked("") else {
        return;
    };
    let before = world.dump();
    let mut events = Events::follow(&world);
    world.up();
    path_becomes(&world, SERVER.into());
    world.reaches_all_behind();
    let changed = events.until("relay_changed");
    assert_eq!(changed["relay"], SERVER, "{changed}");
    assert_eq!(changed["transport"], "udp", "{changed}");
    let status = is_shown(&world, SERVER, "udp");
    assert_eq!(status["peers"][0]["endpoint"], PEER, "{status}");
    let shown = world.shell("wg show wg0 endpoints");
    assert!(shown.contains(PEER), "{shown}");
    carries_large_packets(&world);
    assert!(server.relayed() > 0);
    // The machine comes to a network where UDP passes.
    world.shell("nft delete table inet firewall");
    world.changes_network();
    path_becomes(&world, Value::Null);
    assert_eq!(events.until("relay_changed")["relay"], Value::Null);
    world.reaches(BEHIND[0]);
    let carried = server.relayed();
    world.reaches(BEHIND[0]);
    assert_eq!(server.relayed(), carried);
    world.changes_network_back();
    drop(events);
    world.down();
    block(&world, &UDP_RULES);
    world.is_left_as(&before);
}

#[test]
fn a_closed_kill_switch_lets_nothing_but_the_tunnel_out_to_the_relay() {
    let Some((world, _server)) = blocked("#convoy: KillSwitch = on\n") else {
        return;
    };
    let is_relayed = |it: &Seen| it.to.to_string() == "203.0.113.254" && it.udp == Some(3478);
    let try_others = || assert!(!world.answers("203.0.113.254"));
    only_passes(&world, SERVER, is_relayed, try_others);
}

#[test]
fn a_server_that_restarts_is_asked_again() {
    let Some((world, server)) = blocked("") else {
        return;
    };
    world.up();
    path_becomes(&world, SERVER.into());
    world.reaches(BEHIND[0]);
    drop(server);
    let _server = start_turn(&world.net, address(), RelayTransport::Udp);
    let answers = || world.answers(BEHIND[0]).then_some(());
    assert!(eventually(6 * DEADLINE, answers).is_some());
    world.down();
}

#[test]
fn a_server_that_is_not_there_is_told_of_and_a_reload_brings_another() {
    let Some((world, server)) = blocked("") else {
        return;
    };
    drop(server);
    world.up();
    let start_handshake = || world.answers(BEHIND[0]);
    let relays = || {
        start_handshake();
        let relay = world.status()["relays"][0].clone();
        (relay["state"] == "failed").then_some(relay)
    };
    let failed = eventually(3 * DEADLINE, relays).expect("a failure");
    assert_eq!(failed["problem"], "the relay does not answer", "{failed}");
    let _server = start_turn(
        &world.net,
        "203.0.113.254:3479".parse().unwrap(),
        RelayTransport::Udp,
    );
    world.configure(&udp_line("203.0.113.254:3479"), EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    path_becomes(&world, "203.0.113.254:3479".into());
    world.reaches(BEHIND[0]);
    world.down();
}

#[test]
fn the_password_is_nowhere_outside_of_memory() {
    let Some((world, _server)) = blocked("") else {
        return;
    };
    let is_nowhere = |when: &str| {
        for (place, text) in secrets::everything(&world) {
            assert!(!text.contains(PASSWORD), "{when}: {place}: {text}");
        }
    };
    secrets::traced(&world, &["up", "wg0"], 0);
    path_becomes(&world, SERVER.into());
    world.reaches(BEHIND[0]);
    is_nowhere("up");
    for arguments in [
        &["status", "wg0"][..],
        &["status", "wg0", "--json"],
        &["stats", "wg0", "--json"],
        &["reload", "wg0"],
        &["check", "wg0"],
    ] {
        secrets::traced(&world, arguments, 0);
    }
    crash(world.supervisor());
    secrets::traced(&world, &["up", "wg0"], 0);
    is_nowhere("taken over");
    for mistake in [
        format!("turn:{USER}:{PASSWORD}@203.0.113.254"),
        format!("turn:203.0.113.254 Username = {USER} Password = {PASSWORD}"),
    ] {
        world.configure(&format!("#convoy: Turn = {mistake}"), EVERYTHING);
        secrets::traced(&world, &["reload", "wg0"], 1);
        secrets::traced(&world, &["check", "wg0"], 1);
    }
    world.configure(&udp_line(SERVER), EVERYTHING);
    is_nowhere("mistakes");
    secrets::traced(&world, &["down", "wg0"], 0);
    is_nowhere("down");
}

/// A client behind the firewall whose file names the server, and the server.
fn blocked(lines: &str) -> Option<(World, RelayServer)> {
    Some(block_all_but_turn(World::new()?, lines))
}

fn block_all_but_turn(world: World, lines: &str) -> (World, RelayServer) {
    let server = start_turn(&world.net, address(), RelayTransport::Udp);
    block(&world, &UDP_RULES);
    let turn = udp_line(SERVER);
    world.configure(&format!("{turn}\n{lines}"), EVERYTHING);
    (world, server)
}

fn udp_line(server: &str) -> String {
    turn_line(&format!("turn:{server}"), "")
}

fn address() -> SocketAddr {
    SERVER.parse().unwrap()
}

/// Gives the client a firewall that drops what each rule says, and the file of the password.
pub(super) fn block(world: &World, rules: &[&str]) {
    let rules = rules
        .iter()
        .map(|it| format!("nft add rule inet firewall {it} drop\n"));
    let chains = "nft add table inet firewall
         nft 'add chain inet firewall out { type filter hook output priority 10; }'
         nft 'add chain inet firewall in { type filter hook input priority 10; }'\n";
    world.shell(&(chains.to_owned() + &rules.collect::<String>()));
    world.write("wireguard/turn.password", &format!("{PASSWORD}\n"));
}

/// A server's line in the file; `more` stands before the password's file.
pub(super) fn turn_line(uri: &str, more: &str) -> String {
    format!("#convoy: Turn = {uri} Username = {USER} {more} PasswordFile = turn.password")
}

/// Requires that the status shows the server at work for one peer; returns it.
pub(super) fn is_shown(world: &World, server: &str, transport: &str) -> Value {
    let status = world.status();
    let relay = &status["relays"][0];
    assert_eq!(relay["state"], "ready", "{status}");
    assert_eq!(relay["transport"], transport, "{status}");
    assert_eq!(relay["peers"], 1, "{status}");
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    let path = format!("path: relay {server} ({transport})");
    assert!(text.contains(&path), "{text}");
    status
}

/// Requires that a closed kill switch lets nothing out but what `may_pass`, from `up` past a crash of the tunnel to
/// `down`. `try_others` has other programs send to the server.
pub(super) fn only_passes(
    world: &World,
    server: &str,
    may_pass: impl Fn(&Seen) -> bool,
    try_others: impl FnOnce(),
) {
    let before = world.dump();
    world.up();
    path_becomes(world, server.into());
    world.reaches_all_behind();
    let capture = Capture::new(world);
    try_others();
    crash(world.tunnel());
    path_becomes(world, server.into());
    world.reaches_all_behind();
    for packet in capture.seen() {
        assert!(may_pass(&packet) || !packet.is_leak(), "{packet:?}");
    }
    world.down();
    world.is_left_as(&before);
}

/// Waits until data to the peer takes this server, or none.
pub(super) fn path_becomes(world: &World, relay: Value) {
    let mut last = Value::Null;
    let is_so = || {
        // A packet begins a handshake, if none is under way.
        world.answers(BEHIND[0]);
        last = world.status();
        let peer = &last["peers"][0];
        (peer["relay"] == relay && peer["state"] == "connected").then_some(())
    };
    assert!(
        eventually(3 * DEADLINE, is_so).is_some(),
        "the relay is not {relay}: {last}"
    );
}

pub(super) fn carries_large_packets(world: &World) {
    let (client, server) = (&world.client, &world.server);
    let progress = AtomicU64::new(0);
    for (from, to, address) in [(client, server, BEHIND[0]), (server, client, "10.8.0.2")] {
        tcp_between(from, to, address.parse().unwrap(), BYTES, &progress);
    }
}
