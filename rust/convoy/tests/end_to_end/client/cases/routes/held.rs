//! Networks of the tunnel that hold its own endpoints, the name servers for them, or this machine.

use crate::client::{
    capture::{Capture, DNS},
    names::NameServer,
    world::{BEHIND, World},
};

#[test]
fn the_machines_own_key_among_the_peers_gets_a_warning_and_no_route() {
    let Some(world) = World::new() else { return };
    world.gives_lan_a_metric();
    world.install(include_str!("../inputs/C04-own-key-among-peers.conf"));
    let checked = world.convoy(&["check", "wg0"]).succeeds();
    assert!(checked.stderr.contains("wg0.conf:9"), "{checked:?}");
    assert!(checked.stderr.contains("the machine itself"), "{checked:?}");
    world.up();
    for outside in ["192.168.1.1", "203.0.113.254"] {
        assert!(
            world.way(outside).contains("dev eth0"),
            "{}",
            world.way(outside)
        );
        world.reaches(outside);
    }
    assert_eq!(world.shell("wg show wg0 peers | wc -l").trim(), "1");
    world.down();
    // The key may be in a file of its own, and the peer in a file of another author.
    let text = include_str!("../inputs/C04-own-key-among-peers.conf");
    let (head, own) = text.split_once("[Peer]").unwrap();
    let (own, other) = own.split_once("[Peer]").unwrap();
    let key = "QOXxvncO9cOG4Zk45QUz73zwJPZp7r9vPgVPJQh2q1Y=";
    world.shell("mkdir -p /etc/wireguard/wg0.d");
    world.write("wireguard/key", key);
    world.write("wireguard/wg0.d/own.conf", &format!("[Peer]{own}"));
    let head = head.replace(
        &format!("PrivateKey = {key}"),
        "#convoy: PrivateKeyFile = /etc/wireguard/key",
    );
    world.install(&format!("{head}[Peer]{other}"));
    let checked = world.convoy(&["check", "wg0"]).succeeds();
    assert!(checked.stderr.contains("own.conf:3"), "{checked:?}");
    world.up();
    world.reaches("192.168.1.1");
}

#[test]
fn the_machines_own_key_gets_no_route_if_a_hook_sets_it() {
    let Some(world) = World::new() else { return };
    let text = include_str!("../inputs/C04-own-key-among-peers.conf");
    let key = "QOXxvncO9cOG4Zk45QUz73zwJPZp7r9vPgVPJQh2q1Y=";
    world.write("wireguard/wg0.key", key);
    let hook = "PostUp = wg set %i private-key /etc/wireguard/%i.key";
    let text = text.replace(&format!("PrivateKey = {key}"), hook);
    world.gives_lan_a_metric();
    world.install(&text);
    let up = world.up();
    assert!(up.stderr.contains("this machine itself"), "{up:?}");
    for _ in 0..2 {
        for outside in ["192.168.1.1", "203.0.113.254"] {
            assert!(
                world.way(outside).contains("dev eth0"),
                "{}",
                world.way(outside)
            );
            world.reaches(outside);
        }
        world.convoy(&["reload", "wg0"]).succeeds();
    }
    assert!(world.way("10.8.0.2").contains("dev wg0"));
}

#[test]
fn halves_of_all_addresses_are_a_default_route_and_the_line_is_named() {
    let Some(world) = World::new() else { return };
    world.install(include_str!("../inputs/C07-halves.conf"));
    let before = world.dump();
    let checked = world.convoy(&["check", "wg0"]).succeeds();
    assert!(
        checked.stderr.contains("hold the endpoint 203.0.113.1"),
        "{checked:?}"
    );
    assert!(checked.stderr.contains("wg0.conf:7"), "{checked:?}");
    world.up();
    assert!(
        world.marked_way("203.0.113.1").contains("dev eth0"),
        "{}",
        world.marked_way("203.0.113.1")
    );
    assert!(world.way("203.0.113.7").contains("dev wg0"));
    let doctor = flat(&world.convoy(&["doctor", "wg0"]).stdout);
    assert!(
        doctor.contains("Datagrams to 203.0.113.1 leave by eth0"),
        "{doctor}"
    );
    assert!(doctor.contains("wg0.conf:7"), "{doctor}");
    world.down();
    world.is_left_as(&before);
    let halves =
        "Endpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/1, 128.0.0.0/1, ::/1, 8000::/1\n";
    world.configure("", halves);
    world.up();
    world.reaches_all_behind();
    world.down();
    world.is_left_as(&before);
}

#[test]
fn networks_that_hold_the_endpoint_leave_its_datagrams_outside() {
    let Some(world) = World::new() else { return };
    world.install("");
    let before = world.dump();
    for (allowed, interface) in [
        ("203.0.113.0/24, 198.51.100.0/24", ""),
        ("192.0.0.0/3", ""),
        (
            "203.0.113.1/32, 198.51.100.0/24",
            "#convoy: KillSwitch = on\n",
        ),
        ("0.0.0.0/0, ::/0, 203.0.113.0/24", ""),
    ] {
        let peer = format!("Endpoint = 203.0.113.1:51820\nAllowedIPs = {allowed}\n");
        world.configure(interface, &peer);
        world.up();
        world.reaches(BEHIND[0]);
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn a_name_server_within_the_tunnels_networks_is_asked_outside() {
    let Some(world) = World::with(&["dnsmasq"]) else {
        return;
    };
    world.gives_lan_a_metric();
    let same_lan = include_str!("../inputs/C09-same-lan-both-sides.conf");
    is_asked_outside(&world, "192.168.1.1", same_lan);
    // As in a hotel: its name server is in the network of the office.
    world.shell_at(&world.net, "ip address add 10.53.0.53/32 dev lan");
    let ten = include_str!("../inputs/C09-ten-slash-eight.conf");
    is_asked_outside(&world, "10.53.0.53", ten);
    is_asked_outside(
        &world,
        "10.53.0.53",
        &format!("{ten}\n# other\n").replace("10.0.0.0/8", "10.53.0.53/32"),
    );
}

#[test]
fn a_nearer_network_of_the_lan_stays_reachable_within_a_wide_one_of_the_tunnel() {
    let Some(world) = World::with(&["dnsmasq"]) else {
        return;
    };
    world.shell("ip address add 10.53.0.2/24 dev eth0; ip route add 10.54.0.0/24 via 192.168.1.1");
    world.shell_at(
        &world.net,
        "ip address add 10.53.0.53/24 dev lan; ip address add 10.54.0.1/32 dev lan",
    );
    let server = NameServer::start(&world.net, "10.53.0.53", "203.0.113.1 office.example.net\n");
    world.shell("echo nameserver 10.53.0.53 > /etc/resolv.conf");
    world.install(include_str!("../inputs/C09-ten-slash-eight.conf"));
    world.up();
    for near in ["10.53.0.53", "10.54.0.1"] {
        world.reaches(near);
    }
    for far in ["10.53.1.1", "10.9.9.9"] {
        assert!(world.way(far).contains("dev wg0"), "{}", world.way(far));
    }
    drop(server);
}

/// Line 7 of the input holds the name server.
fn is_asked_outside(world: &World, resolver: &str, input: &str) {
    let names = "203.0.113.1 home.example.net\n203.0.113.1 office.example.net\n";
    let server = NameServer::start(&world.net, resolver, names);
    world.shell(&format!("echo nameserver {resolver} > /etc/resolv.conf"));
    world.install(input);
    let before = world.dump();
    let told = format!("hold the name server {resolver} (/etc/wireguard/wg0.conf:7)");
    let checked = flat(&world.convoy(&["check", "wg0"]).succeeds().stderr);
    assert!(checked.contains(&told), "{checked}");
    let capture = Capture::new(world);
    world.up();
    assert_eq!(world.endpoint(), "203.0.113.1:51820", "{}", world.status());
    let asked = capture.until(|packet| packet.udp == Some(DNS));
    assert!(asked.last().unwrap().is_from_client());
    let doctor = flat(&world.convoy(&["doctor", "wg0"]).stdout);
    assert!(doctor.contains(&told), "{doctor}");
    assert!(
        world.way(resolver).contains("dev wg0"),
        "{}",
        world.way(resolver)
    );
    assert!(world.marked_way(resolver).contains("dev eth0"));
    world.down();
    world.is_left_as(&before);
    drop(server);
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
