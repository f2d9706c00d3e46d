//! Paths that swallow large datagrams without a word.

use std::sync::atomic::AtomicU64;

use convoy_lab::eventually;
use serde_json::Value;

use super::{
    process::crash,
    world::{BEHIND, EVERYTHING, World},
};
use crate::{
    scene::DEADLINE,
    traffic::tcp_between,
    twins::{private_key, public_key},
};

/// The longest UDP packet that gets through, and the largest packet in the tunnel that fits it: 8 bytes of UDP, 32
/// of WireGuard and up to 15 of padding less.
const LONGEST: u32 = 1_380;
const FITS: u32 = 1_328;
/// The MTU that the route to the server leads to.
const OF_ROUTE: u32 = 1_420;
const BYTES: u64 = 3_000_000;

#[test]
fn on_a_path_that_swallows_large_datagrams_the_mtu_becomes_what_gets_through() {
    let Some(world) = swallowing("", LONGEST) else {
        return;
    };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    is_lowered(&world, FITS);
    carries_large_packets(&world);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn another_supervisor_keeps_the_limit() {
    let Some(world) = swallowing("", LONGEST) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    is_lowered(&world, FITS);
    crash(world.supervisor());
    world.up();
    assert_eq!(world.status()["mtu"], FITS);
    is_lowered(&world, FITS);
}

#[test]
fn a_path_that_carries_large_packets_leaves_the_mtu_alone() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = fd08::1\n", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    is_probed(&world, r#""outcome":"Fits { target: fd08::1 }"#);
    is_untouched(&world);
}

#[test]
#[ignore = "make interop"]
fn a_host_that_never_answers_changes_nothing() {
    let Some(world) = swallowing("", LONGEST) else {
        return;
    };
    world.shell_at(
        &world.server,
        "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all
         echo 1 > /proc/sys/net/ipv6/icmp/echo_ignore_all",
    );
    world.configure("", EVERYTHING);
    world.up();
    assert!(!world.answers(BEHIND[0]));
    is_probed(&world, r#""outcome":"Unknown"#);
    is_untouched(&world);
}

#[test]
#[ignore = "make interop"]
fn in_another_network_the_limit_is_forgotten_and_the_configured_mtu_back() {
    let Some(world) = swallowing("ip saddr 192.168.1.2", LONGEST) else {
        return;
    };
    world.configure("MTU = 1400\nDNS = fd08::1\n", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    is_lowered(&world, FITS);
    world.changes_network();
    world.status_becomes("mtu", 1_400);
    world.status_becomes("warnings", Value::Array(Vec::new()));
    is_probed(&world, r#""outcome":"Fits"#);
    assert_eq!(world.status()["mtu"], 1_400);
    world.changes_network_back();
    is_lowered(&world, FITS);
}

#[test]
#[ignore = "make interop"]
fn a_firewall_that_drops_fragments_lowers_the_mtu_too() {
    let Some(world) = World::new() else { return };
    world.shell_at(&world.net, "ip link set wan mtu 1400");
    world.shell_at(
        &world.server,
        "nft 'add table inet firewall'
         nft 'add chain inet firewall in { type filter hook prerouting priority -450; }'
         nft 'add rule inet firewall in ip frag-off & 0x3fff != 0 drop'",
    );
    world.configure("", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    is_lowered(&world, FITS);
    carries_large_packets(&world);
}

#[test]
#[ignore = "make interop"]
fn only_without_ipv6_the_mtu_falls_below_1280() {
    let Some(world) = swallowing("", 1_000) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    is_probed(&world, r#""outcome":"TooNarrow"#);
    let status = world.status();
    assert_eq!(status["mtu"], OF_ROUTE, "{status}");
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("10.8.0.1"), "{warnings}");
    world.down();
    let (own, server) = (private_key(1), public_key(2));
    world.write(
        "wireguard/wg0.conf",
        &format!(
            "[Interface]\nPrivateKey = {own}\nAddress = 10.8.0.2/24\n\
             [Peer]\nPublicKey = {server}\nEndpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/0\n"
        ),
    );
    world.up();
    world.reaches(BEHIND[0]);
    // 1,000 bytes less 8 of UDP and 32 of WireGuard.
    is_lowered(&world, 960);
}

#[test]
#[ignore = "make interop"]
fn a_pause_puts_the_probe_off() {
    let Some(world) = swallowing("", LONGEST) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.up();
    world.convoy(&["pause", "wg0"]).succeeds();
    world.reaches("10.8.0.1");
    // The supervisor has heard of the handshake by now.
    assert_eq!(world.status()["state"], "paused");
    assert_eq!(probes(&world), 0);
    is_untouched(&world);
    world.convoy(&["resume", "wg0"]).succeeds();
    is_lowered(&world, FITS);
}

/// A world whose net drops UDP packets that are longer than this without a word, of these IP packets.
fn swallowing(which: &str, longest: u32) -> Option<World> {
    let world = World::with(&["ethtool"])?;
    world.shell_at(
        &world.net,
        &format!(
            "nft 'add table inet narrow'
             nft 'add chain inet narrow forward {{ type filter hook forward priority 0; }}'
             nft 'add rule inet narrow forward {which} udp length > {longest} drop'"
        ),
    );
    // Otherwise the net sees whole batches.
    for place in [&world.client, &world.server] {
        place.link().cut_batches("eth0").unwrap();
    }
    Some(world)
}

/// Waits until the interface has this MTU, and requires a warning that says so.
fn is_lowered(world: &World, mtu: u32) {
    world.status_becomes("mtu", mtu);
    let link = world.shell("ip link show wg0");
    assert!(link.contains(&format!("mtu {mtu}")), "{link}");
    let status = world.status();
    let warnings = status["warnings"].to_string();
    let words = format!("packets larger than {mtu} bytes do not reach");
    assert!(warnings.contains(&words), "{warnings}");
    let text = world.convoy(&["status", "wg0"]).stdout;
    assert!(text.contains(&format!("warning: {words}")), "{text}");
    assert!(world.log().contains(&words));
}

fn is_untouched(world: &World) {
    let status = world.status();
    assert_eq!(status["mtu"], OF_ROUTE, "{status}");
    assert_eq!(status["warnings"], Value::Array(Vec::new()), "{status}");
    let link = world.shell("ip link show wg0");
    assert!(link.contains(&format!("mtu {OF_ROUTE}")), "{link}");
}

/// Waits until a probe has ended in this way.
fn is_probed(world: &World, outcome: &str) {
    let has_ended = || world.log().contains(outcome).then_some(());
    assert!(eventually(DEADLINE, has_ended).is_some(), "no {outcome}");
}

/// Returns how many probes have begun.
fn probes(world: &World) -> usize {
    world.log().matches("Probing the path").count()
}

/// Requires that pings of the MTU's size and TCP in both directions get through.
fn carries_large_packets(world: &World) {
    let payload = FITS - 28;
    world.shell(&format!("ping -n -c1 -W5 -M do -s {payload} {}", BEHIND[0]));
    let (client, server) = (&world.client, &world.server);
    let progress = AtomicU64::new(0);
    tcp_between(client, server, BEHIND[0].parse().unwrap(), BYTES, &progress);
    tcp_between(
        server,
        client,
        "10.8.0.2".parse().unwrap(),
        BYTES,
        &progress,
    );
}
