//! `convoy status`: what is up, and why something is not.

use std::{
    os::unix::net::UnixListener,
    time::{Duration, Instant},
};

use convoy_lab::{Turn, eventually};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use super::{
    process::crash,
    stream::Stream,
    world::{BEHIND, EVERYTHING, World},
};
use crate::{
    scene::DEADLINE,
    twins::{private_key, public_key},
};

#[test]
fn status_shows_what_is_up() {
    let Some(world) = World::new() else { return };
    let interface = "DNS = 10.8.0.1\nListenPort = 51999\n#convoy: KillSwitch = on\n";
    world.configure(
        interface,
        &format!("# friendly_name = Office\n{EVERYTHING}"),
    );
    world.up();
    world.reaches(BEHIND[0]);
    let status = world.status();
    for (field, expected) in [
        ("name", Value::from("wg0")),
        ("state", "up".into()),
        ("config", "/etc/wireguard/wg0.conf".into()),
        ("mtu", 1_420.into()),
        ("listen_port", 51_999.into()),
        ("fwmark", 51_820.into()),
        ("kill_switch", "on".into()),
        ("dns", vec!["10.8.0.1"].into()),
        ("warnings", Value::Array(Vec::new())),
    ] {
        assert_eq!(status[field], expected, "{status}");
    }
    for field in ["since", "supervisor_pid", "tunnel_pid"] {
        assert!(
            status[field].as_u64().is_some_and(|n| n > 1),
            "{field}: {status}"
        );
    }
    let peer = &status["peers"][0];
    assert_eq!(status["public_key"], public_key(1));
    assert_eq!(peer["public_key"], public_key(2));
    assert_eq!(peer["state"], "connected");
    assert_eq!(peer["name"], "Office");
    assert_eq!(peer["endpoint"], "203.0.113.1:51820");
    assert!(peer["problem"].is_null(), "{peer}");
    for field in [
        "latest_handshake",
        "connected_since",
        "handshake_round_trip_us",
        "rx_bytes",
        "tx_bytes",
    ] {
        assert!(
            peer[field].as_u64().is_some_and(|n| n > 0),
            "{field}: {peer}"
        );
    }
    assert!(status["stats"]["inbound"]["packets"].as_u64() > Some(0));
    assert!(status["rate"]["rx"].as_u64() > Some(0), "{status}");
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for word in [
        "wg0",
        "connected for",
        "handshake round trip: ",
        "packets per TUN read ",
        "AEAD: ",
        "Office",
        "203.0.113.1:51820",
        "51999",
        "10.8.0.1",
        "1420",
    ] {
        assert!(text.contains(word), "no {word} in:\n{text}");
    }
}

#[test]
fn status_without_a_name_shows_every_tunnel() {
    let Some(world) = World::new() else { return };
    let nothing = world.convoy(&["status", "--json"]).ends_with(3);
    let nothing: Value = serde_json::from_str(&nothing.stdout).unwrap();
    assert_eq!(nothing["interfaces"], Value::Array(Vec::new()));
    world.configure("", EVERYTHING);
    let own = private_key(3);
    let another = format!("[Interface]\nPrivateKey = {own}\nAddress = 10.7.0.2/24\n");
    world.write("wireguard/wg1.conf", &another);
    for name in ["wg0", "wg1"] {
        world.convoy(&["status", name]).ends_with(3);
        world.convoy(&["up", name]).succeeds();
        world.convoy(&["status", name]).succeeds();
    }
    let all = world.convoy(&["status", "--json"]).succeeds().stdout;
    let all: Value = serde_json::from_str(&all).unwrap();
    let names: Vec<_> = all["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["wg0", "wg1"]);
    world.convoy(&["down", "wg1"]).succeeds();
    world.convoy(&["status", "wg1"]).ends_with(3);
    world.convoy(&["status"]).succeeds();
}

#[test]
fn status_shows_the_others_if_some_do_not_answer() {
    let _alone = Turn::alone("it measures how long a command takes");
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let _silent = ["wg8", "wg9"].map(|name| {
        let sockets = world.client.run_directory().join("wireguard");
        UnixListener::bind(sockets.join(format!("{name}.sock"))).unwrap()
    });
    let begin = Instant::now();
    let outcome = world.convoy(&["status", "--json"]).ends_with(1);
    // Each one is given ten seconds.
    assert!(begin.elapsed() < Duration::from_secs(19), "one by one");
    let said: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let names = said["interfaces"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|it| &it["name"]).collect();
    assert_eq!(names, ["wg0"]);
    for name in ["wg8: ", "wg9: "] {
        assert!(outcome.stderr.contains(name), "{outcome:?}");
    }
}

#[test]
fn status_says_why_nothing_arrives() {
    let Some(world) = World::new() else { return };
    let elsewhere = "Endpoint = 203.0.113.77:51820\nAllowedIPs = 0.0.0.0/0\n";
    world.configure("", elsewhere);
    world.up();
    assert!(!world.answers(BEHIND[0]));
    assert!(world.status()["peers"][0]["latest_handshake"].is_null());
    peer_becomes(&world, "no answer", "203.0.113.77:51820 was called");
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    assert!(text.contains("never"), "{text}");
    world.shell("ip route delete default");
    peer_becomes(&world, "no route", "Network is unreachable");
}

#[test]
fn status_says_that_the_preshared_keys_differ() {
    let Some(world) = World::new() else { return };
    let shared = format!("PresharedKey = {}\n{EVERYTHING}", private_key(9));
    world.configure("", &shared);
    world.up();
    assert!(!world.answers(BEHIND[0]));
    peer_becomes(&world, "not authentic", "same preshared key");
    world.configure("", EVERYTHING);
    world.convoy(&["reload", "wg0"]).succeeds();
    world.reaches(BEHIND[0]);
    peer_becomes(&world, "connected", "");
}

#[test]
fn status_shows_the_rate_of_each_peer() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let _stream = Stream::start(&world, BEHIND[0]);
    let said = world.convoy(&["status", "wg0", "--rates", "--json"]);
    let said: Value = serde_json::from_str(&said.succeeds().stdout).unwrap();
    let status = &said["interfaces"][0];
    for rate in [&status["rate"], &status["peers"][0]["rate"]] {
        assert!(rate["seconds"].as_f64() >= Some(1.0), "{status}");
        for direction in ["rx", "tx"] {
            assert!(rate[direction].as_u64() > Some(0), "{status}");
        }
    }
}

#[test]
fn status_shows_a_daemon_that_has_no_supervisor() {
    let Some(world) = World::new() else { return };
    world.convoy(&["wg7"]).succeeds();
    world.shell("wg set wg7 listen-port 51777 fwmark 0x77");
    let said = world.convoy(&["status", "--json"]).succeeds().stdout;
    let said: Value = serde_json::from_str(&said).unwrap();
    let status = &said["interfaces"][0];
    assert_eq!(status["name"], "wg7", "{said}");
    assert_eq!(status["state"], "daemon", "{said}");
    assert_eq!(status["fwmark"], 0x77, "{said}");
    let text = world.convoy(&["status", "wg7"]).succeeds().stdout;
    assert!(text.contains("state: up as a daemon"), "{text}");
    world.shell("ip link delete wg7");
    let is_gone = || (world.convoy(&["status", "wg7"]).code == Some(3)).then_some(());
    assert!(eventually(DEADLINE, is_gone).is_some());
}

#[test]
fn hosts_behind_the_client_get_a_clamped_mss() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    let stats = world.convoy(&["stats", "wg0", "--json"]).succeeds().stdout;
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["counters"]["state"]["clamp_mss"], "on", "{stats}");
}

#[test]
fn status_tells_how_often_the_tunnel_has_died() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    for often in ["died once", "died 2 times"] {
        crash(world.tunnel());
        world.reaches(BEHIND[0]);
        let warnings = world.status()["warnings"].to_string();
        assert!(warnings.contains(often), "{warnings}");
        let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
        assert!(text.contains(often), "{text}");
    }
}

#[test]
fn status_tells_of_a_tunnel_without_its_supervisor() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    let tunnel = world.tunnel();
    crash(world.supervisor());
    let status = world.status();
    assert_eq!(status["state"], "without supervisor", "{status}");
    let text = world.convoy(&["status", "wg0"]).stdout;
    assert!(text.contains("convoy up wg0"), "{text}");
    kill(tunnel, Signal::SIGSTOP).unwrap();
    let status = world.status();
    assert_eq!(status["state"], "without supervisor", "{status}");
    let warnings = status["warnings"].to_string();
    let silence = format!("the tunnel process {tunnel} does not answer");
    assert!(warnings.contains(&silence), "{warnings}");
    crash(tunnel);
    world.convoy(&["status", "wg0"]).ends_with(3);
}

/// Waits until the first peer is in this state, with these words about it.
fn peer_becomes(world: &World, state: &str, words: &str) {
    let mut last = Value::Null;
    let is_so = || {
        last = world.status()["peers"][0].take();
        let problem = last["problem"].as_str().unwrap_or_default();
        (last["state"] == state && problem.contains(words)).then_some(())
    };
    assert!(
        eventually(DEADLINE, is_so).is_some(),
        "not {state}, {words:?}: {last}"
    );
}
