//! `convoy status`: what is up, and why something is not.

use serde_json::Value;

use super::{
    process::crash,
    world::{BEHIND, EVERYTHING, World},
};
use crate::twins::{private_key, public_key};

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
    assert_eq!(peer["public_key"], public_key(2));
    assert_eq!(peer["name"], "Office");
    assert_eq!(peer["endpoint"], "203.0.113.1:51820");
    assert!(peer["problem"].is_null(), "{peer}");
    for field in ["latest_handshake", "rx_bytes", "tx_bytes"] {
        assert!(
            peer[field].as_u64().is_some_and(|n| n > 0),
            "{field}: {peer}"
        );
    }
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    for word in [
        "wg0",
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
fn status_says_why_nothing_arrives() {
    let Some(world) = World::new() else { return };
    let elsewhere = "Endpoint = 203.0.113.77:51820\nAllowedIPs = 0.0.0.0/0\n";
    world.configure("", elsewhere);
    world.up();
    assert!(!world.answers(BEHIND[0]));
    assert!(world.status()["peers"][0]["latest_handshake"].is_null());
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    assert!(text.contains("never"), "{text}");
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
    crash(tunnel);
    world.convoy(&["status", "wg0"]).ends_with(3);
}
