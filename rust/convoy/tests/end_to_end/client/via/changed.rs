//! Changes by `wg set`, which reaches the inner tunnel alone.

use super::{BEHIND_SECOND, Hops, SECOND};
use crate::{client::process::crash, twins::public_key};

/// A first hop that leads to the second one alone.
const NARROW: &str = "Endpoint = 203.0.113.1:51820\nAllowedIPs = 192.0.2.0/24\n";

#[test]
fn a_peer_of_the_outer_tunnel_is_refused_whichever_of_the_two_gets_it_first() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    world.up();
    hops.reaches_behind();
    let set = |words: &str| world.shell(&format!("wg set wg0 peer {words} 2>&1 || true"));
    let refused = set(&format!("{} allowed-ips 10.66.0.0/16", public_key(2)));
    assert!(refused.contains("File exists"), "{refused}");
    assert_eq!(world.shell("wg show wg0 peers").trim(), public_key(3));
    // The other order.
    let third = public_key(9);
    assert_eq!(set(&format!("{third} allowed-ips 10.66.0.0/16")), "");
    let former = hops.etc("hop.conf");
    let another = format!("[Peer]\nPublicKey = {third}\nAllowedIPs = 10.67.0.0/16\n");
    world.write("wireguard/hop.conf", &format!("{former}{another}"));
    world
        .convoy(&["reload", "wg0"])
        .fails_with("which was added to wg0 meanwhile");
    // Another supervisor and another process of the tunnel have only the files.
    crash(world.supervisor());
    world.up();
    hops.reaches_behind();
    assert_eq!(world.shell("wg show wg0 peers").trim(), public_key(3));
    let status = world.status();
    assert_eq!(status["via"]["peers"][1]["public_key"], third, "{status}");
    crash(world.tunnel());
    hops.reaches_behind();
    assert_eq!(world.shell("wg show wg0 peers").trim(), public_key(3));
    // Without the outer tunnel's claim, it is a peer like any other.
    world.write("wireguard/hop.conf", &former);
    world.convoy(&["reload", "wg0"]).succeeds();
    assert_eq!(set(&format!("{third} allowed-ips 10.66.0.0/16")), "");
    hops.reaches_behind();
}

#[test]
fn an_endpoint_that_the_outer_tunnel_does_not_hold_is_told_and_nothing_leaves_for_it() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    hops.configure_first(NARROW);
    hops.watch();
    world.up();
    hops.reaches_behind();
    let second = public_key(3);
    for (endpoint, told) in [
        ("198.51.100.77:51820", "`AllowedIPs` of hop do not hold it"),
        (
            "[2001:db8:9::2]:51820",
            "`AllowedIPs` of hop do not hold it",
        ),
    ] {
        world.shell(&format!("wg set wg0 peer {second} endpoint {endpoint}"));
        world.shell(&format!("ping -c 2 -W 1 {BEHIND_SECOND} || true"));
        let status = world.status();
        let peer = &status["peers"][0];
        assert_eq!(peer["state"], "no route", "{status}");
        let problem = peer["problem"].as_str().expect("a problem");
        assert!(problem.contains(told), "{problem}");
        let dropped = &status["via"]["stats"]["drops"]["outbound_no_route"];
        assert!(dropped.as_u64() > Some(0), "{status}");
    }
    let doctor = world.convoy(&["doctor", "wg0"]);
    assert!(
        doctor.stdout.contains("`AllowedIPs` of hop"),
        "{}",
        doctor.stdout
    );
    let back = format!("wg set wg0 peer {second} endpoint {SECOND}:51820");
    world.shell(&back);
    hops.reaches_behind();
    hops.nothing_was_clear("wg set");
    world.down();
}
