//! Output of commands about both tunnels.

use serde_json::Value;

use super::Hops;
use crate::{metrics::get_unix, twins::public_key};

#[test]
fn the_status_shows_the_outer_tunnel_and_wg_the_inner_one() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    world.up();
    hops.reaches_behind();
    let status = world.status();
    assert_eq!(status["mtu"], 1360);
    assert_eq!(keys(&status["peers"]), [public_key(3)]);
    let via = &status["via"];
    assert_eq!(via["name"], "hop");
    assert_eq!(via["config"], "/etc/wireguard/hop.conf");
    assert_eq!(via["public_key"], public_key(1));
    assert_eq!(keys(&via["peers"]), [public_key(2)]);
    for peer in [&via["peers"][0], &status["peers"][0]] {
        assert_eq!(peer["state"], "connected", "{status}");
    }
    assert_eq!(via["peers"][0]["endpoint"], "203.0.113.1:51820");
    let text = world.convoy(&["status", "wg0"]).succeeds().stdout;
    assert!(text.contains("through: hop"), "{text}");
    assert_eq!(world.endpoint(), "192.0.2.2:51820");
    // Neither command reveals the outer tunnel's key.
    let stats = world.convoy(&["stats", "wg0", "--json"]).succeeds().stdout;
    assert!(stats.contains(&public_key(2)), "{stats}");
    assert!(!stats.contains(&crate::twins::private_key(1)));
    world.down();
}

#[test]
fn counters_and_metrics_tell_the_outer_tunnel_from_the_inner_one() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    let socket = "unix:/run/convoy/wg0.metrics";
    world.convoy(&["up", "--metrics", socket, "wg0"]).succeeds();
    hops.reaches_behind();
    let (own, first, second) = (public_key(1), public_key(2), public_key(3));
    let text = world.convoy(&["stats", "wg0"]).succeeds().stdout;
    let (inner, outer) = text.split_once("\nouter tunnel ").expect(&text);
    assert!(inner.contains(&format!("\npeer {second}")), "{text}");
    assert!(!inner.contains(&first), "{text}");
    assert!(outer.starts_with(&own), "{text}");
    assert!(outer.contains("\n  1 handshakes, "), "{text}");
    assert!(outer.contains(&format!("\nouter peer {first}")), "{text}");
    let status = world.status();
    let carried = |counters: &Value| counters["outbound"]["bytes"].as_u64().expect("a number");
    let (inner, outer) = (&status["stats"], &status["via"]["stats"]);
    assert!(carried(outer) > carried(inner), "{status}");
    let path = world.client.run_directory().join("convoy/wg0.metrics");
    let metrics = get_unix(&path, "/metrics").body;
    let session = |family: &str, key: &str| {
        let series =
            format!("convoy_{family}{{interface=\"wg0\",public_key=\"{key}\",name=\"\"}} 1\n");
        metrics.contains(&series)
    };
    assert!(session("outer_peer_session", &first), "{metrics}");
    assert!(session("peer_session", &second), "{metrics}");
    assert!(!session("peer_session", &first), "{metrics}");
    assert!(metrics.contains("convoy_outer_handshakes_total{interface=\"wg0\"} 1\n"));
    world.down();
}

fn keys(peers: &Value) -> Vec<String> {
    let peers = peers.as_array().expect("a list");
    let keys = peers.iter().map(|peer| peer["public_key"].as_str());
    keys.map(|key| key.expect("a key").to_owned()).collect()
}
