//! The life of two tunnels from `up` to `down`.

use std::net::UdpSocket;

use super::{BEHIND_SECOND, Hops, SECOND};
use crate::{
    client::{
        process::{crash, kill_all},
        world::{EVERYTHING, World},
    },
    twins::public_key,
};

#[test]
fn packets_reach_the_second_hop_through_the_first_and_one_interface_is_to_see() {
    let Some(hops) = Hops::new("") else { return };
    let before = hops.world.dump();
    hops.watch();
    hops.world.up();
    hops.reaches_behind();
    let links = hops.world.shell("ip -o link");
    assert!(links.contains("wg0") && !links.contains("hop"), "{links}");
    assert!(
        links.contains("wg0: ") && links.contains("mtu 1360"),
        "{links}"
    );
    // The first hop hides the client's address.
    assert!(hops.endpoint_at_second().starts_with("10.8.0.2:"));
    let shown = hops.world.shell("wg show all dump");
    assert_eq!(shown.lines().count(), 2, "{shown}");
    hops.nothing_was_clear("up");
    // As long as an interface of this MTU takes them.
    hops.world
        .shell(&format!("ping -c 3 -M do -s {} {BEHIND_SECOND}", 1360 - 28));
    hops.world.down();
    hops.world.shell("nft delete table inet watch");
    hops.world.is_left_as(&before);
}

#[test]
fn nothing_leaves_in_the_clear_while_processes_are_killed_and_the_files_change() {
    let Some(hops) = Hops::new("#convoy: KillSwitch = on\n") else {
        return;
    };
    let world = &hops.world;
    hops.watch();
    hops.world.up();
    hops.reaches_behind();
    crash(world.tunnel());
    hops.reaches_behind();
    hops.nothing_was_clear("tunnel killed");
    crash(world.supervisor());
    hops.reaches_behind();
    hops.world.up();
    hops.reaches_behind();
    hops.nothing_was_clear("supervisor killed");
    kill_all(world);
    hops.world.up();
    hops.reaches_behind();
    hops.nothing_was_clear("both killed");
    world.shell("wg set wg0 fwmark 0x1234 listen-port 7777");
    hops.reaches_behind();
    hops.nothing_was_clear("wg set");
    // Somebody who wants to reach the second hop without the tunnel.
    world.shell(&format!("ping -c 1 -W 1 -I eth0 {SECOND} || true"));
    hops.nothing_was_clear("past the tunnel");
    // The first hop goes, but nothing goes around it.
    world.shell_at(&world.server, "ip link set wg0 down");
    world.shell(&format!("ping -c 3 -W 1 {BEHIND_SECOND} || true"));
    assert_eq!(hops.counted("clear"), 0);
    world.shell_at(&world.server, "ip link set wg0 up");
    hops.reaches_behind();
    hops.nothing_was_clear("first hop down");
}

#[test]
fn a_tunnel_that_goes_through_another_only_after_a_crash_sends_nothing_in_the_clear() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    // It would begin a handshake with a new peer at once.
    hops.configure("", "0.0.0.0/0\nPersistentKeepalive = 1");
    let through = hops.etc("wg0.conf");
    let direct = through.replace("#convoy: Via = hop\n", "");
    let direct = direct.replace(SECOND, "203.0.113.7");
    let direct = direct.replace(&public_key(3), &public_key(9));
    world.write("wireguard/wg0.conf", &direct);
    world.up();
    crash(world.supervisor());
    world.write("wireguard/wg0.conf", &through);
    hops.watch();
    world.up();
    hops.reaches_behind();
    assert_eq!(hops.counted("clear"), 0);
}

#[test]
fn either_file_can_be_changed_while_the_tunnel_is_up() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    hops.world.up();
    hops.reaches_behind();
    let tunnel = world.tunnel();
    // The outer file: another port of the first hop.
    world.shell_at(&world.server, "wg set wg0 listen-port 443");
    let moved = EVERYTHING.replace(":51820", ":443");
    hops.configure_first(&moved);
    world.convoy(&["reload", "wg0"]).succeeds();
    hops.reaches_behind();
    // No look-up follows this one.
    hops.configure_first(&format!("{moved}PersistentKeepalive = 25\n"));
    world.convoy(&["reload", "wg0"]).succeeds();
    let status = world.status();
    let keepalive = &status["via"]["peers"][0]["persistent_keepalive"];
    assert_eq!(keepalive, 25, "{status}");
    // The inner one.
    hops.configure("", "198.18.0.0/15");
    world.convoy(&["reload", "wg0"]).succeeds();
    let routes = world.shell("ip route");
    assert!(routes.contains("198.18.0.0/15 dev wg0"), "{routes}");
    hops.reaches_behind();
    // A bad outer one changes nothing.
    hops.configure_first("Endpoint = 203.0.113.1:443\nAllowedIPs = 10.0.0.0/8\n");
    world
        .convoy(&["reload", "wg0"])
        .fails_with("do not hold the endpoint 192.0.2.2");
    hops.reaches_behind();
    hops.configure_first(EVERYTHING);
    let without = hops.etc("wg0.conf").replace("#convoy: Via = hop\n", "");
    world.write("wireguard/wg0.conf", &without);
    world
        .convoy(&["reload", "wg0"])
        .fails_with("`Via` cannot change while wg0 is up");
    assert_eq!(world.tunnel(), tunnel);
    hops.reaches_behind();
}

#[test]
fn a_reload_that_the_tunnel_refuses_leaves_the_outer_one_as_it_was() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    let bound = world.client.run(|| UdpSocket::bind("0.0.0.0:7777"));
    let _holder = bound.unwrap().unwrap();
    world.up();
    hops.reaches_behind();
    hops.configure_first(&EVERYTHING.replace(":51820", ":9"));
    hops.configure("ListenPort = 7777\n", "0.0.0.0/0");
    world
        .convoy(&["reload", "wg0"])
        .fails_with("Address already in use");
    let status = world.status();
    let endpoint = &status["via"]["peers"][0]["endpoint"];
    assert_eq!(endpoint, "203.0.113.1:51820", "{status}");
    hops.reaches_behind();
}

#[test]
fn all_tunnels_go_down_without_a_name_and_nothing_is_left_after_a_crash_or_a_refusal() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    let before = world.dump();
    world.up();
    world
        .convoy(&["down", "hop"])
        .fails_with("the tunnel wg0 goes through hop");
    world.convoy(&["down", "--all"]).succeeds();
    world.is_left_as(&before);
    assert_eq!(left(world), "");
    world.up();
    kill_all(world);
    world.convoy(&["down", "wg0"]).succeeds();
    assert_eq!(left(world), "");
    // An interface that is in the way.
    world.shell("ip link add hop type veth peer name other");
    world.convoy(&["up", "wg0"]).fails_with("is up itself");
    assert_eq!(left(world), "");
}

#[test]
fn datagrams_that_are_cut_on_their_way_to_the_first_hop_are_put_together() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    world.up();
    hops.reaches_behind();
    // Interfaces of both hops have the same MTU, so what the second one seals is too long for the first one's. The first
    // ping may find that out.
    let ping = "ping -c 3 -W 2 -M dont -s 1392 10.7.0.2";
    let answered = world.shell_at(&hops.second, ping);
    assert!(!answered.contains(" 0 received"), "{answered}");
    let drops = &world.status()["via"]["stats"]["drops"];
    for reason in ["inbound_via_fragment", "inbound_via_incomplete"] {
        assert_eq!(drops[reason], 0, "{drops}");
    }
}

#[test]
fn a_route_to_the_first_hop_through_the_interface_makes_no_loop() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    world.up();
    hops.reaches_behind();
    world.shell("ip route add 203.0.113.1 dev wg0");
    world.shell(&format!("ping -c 2 -W 1 {BEHIND_SECOND} || true"));
    let status = world.status();
    let dropped = status["via"]["stats"]["drops"]["outbound_loop"].as_u64();
    assert!(dropped > Some(0), "{status}");
    assert!(dropped < Some(50), "{status}");
    world.shell("ip route del 203.0.113.1 dev wg0");
    hops.reaches_behind();
}

/// Files of both tunnels.
fn left(world: &World) -> String {
    world.shell("ls -d /run/convoy/wg0.* /run/convoy/hop.* 2>/dev/null || true")
}
