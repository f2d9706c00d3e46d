//! Endpoints that are names are looked up outside of the tunnel.

use std::net::UdpSocket;

use convoy_lab::eventually;

use super::{
    capture::{Capture, DNS},
    names::NameServer,
    world::{BEHIND, World},
};
use crate::scene::DEADLINE;

const NAME: &str = "vpn.example.org";
const NAMED: &str = "Endpoint = vpn.example.org:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n";

#[test]
fn an_endpoints_name_is_looked_up_outside_of_the_tunnel() {
    let Some(world) = World::with(&["dnsmasq"]) else {
        return;
    };
    for switch in ["", "#convoy: KillSwitch = on\n"] {
        let outside =
            NameServer::start(&world.net, "192.168.1.1", &format!("203.0.113.1 {NAME}\n"));
        let inside = NameServer::start(&world.server, "10.8.0.1", &format!("10.8.0.77 {NAME}\n"));
        world.configure(&format!("DNS = 10.8.0.1\n{switch}"), NAMED);
        let before = world.dump();
        let capture = Capture::new(&world);
        world.up();
        // A normal `up` returns with the endpoint set.
        assert_eq!(world.endpoint(), "203.0.113.1:51820");
        world.reaches_all_behind();
        let asked = capture.until(|packet| packet.udp == Some(DNS));
        assert!(asked.last().unwrap().is_from_client());
        // Now that its own server is in resolv.conf, too.
        let questions = outside.questions(NAME);
        outside.change(&format!("203.0.113.2 {NAME}\n"));
        world.shell_at(&world.net, "ip route add blackhole 203.0.113.1/32");
        world.changes_network();
        outside.is_asked(NAME, questions);
        world.is_at("203.0.113.2:51820");
        world.reaches_all_behind();
        assert_eq!(inside.questions(NAME), 0);
        world.down();
        world.shell_at(&world.net, "ip route delete blackhole 203.0.113.1/32");
        world.changes_network_back();
        world.is_left_as(&before);
    }
}

#[test]
fn with_a_silent_name_server_it_comes_up_and_connects_as_soon_as_it_answers() {
    let bind = || UdpSocket::bind("192.168.1.1:53").unwrap();
    comes_up_without_a_name_server(|world| Some(world.net.run(bind).unwrap()));
}

#[test]
#[ignore = "make interop"]
fn without_a_name_server_it_comes_up_and_connects_as_soon_as_one_answers() {
    comes_up_without_a_name_server(|_| None);
}

fn comes_up_without_a_name_server(silence: impl Fn(&World) -> Option<UdpSocket>) {
    let Some(world) = World::with(&["dnsmasq"]) else {
        return;
    };
    let silent = silence(&world);
    world.configure("DNS = 10.8.0.1\n", NAMED);
    let before = world.dump();
    world.up();
    world.status_becomes("state", "up");
    let problem = || {
        let status = world.status();
        let problem = status["peers"][0]["problem"].as_str();
        problem
            .is_some_and(|said| said.contains(NAME))
            .then_some(())
    };
    assert!(
        eventually(DEADLINE, problem).is_some(),
        "{}",
        world.status()
    );
    drop(silent);
    let _server = NameServer::start(&world.net, "192.168.1.1", &format!("203.0.113.1 {NAME}\n"));
    world.is_at("203.0.113.1:51820");
    world.reaches_all_behind();
    assert!(world.status()["peers"][0]["problem"].is_null());
    world.down();
    world.is_left_as(&before);
}

#[test]
#[ignore = "make interop"]
fn a_name_with_addresses_of_both_families_connects_by_the_one_that_works() {
    let Some(world) = World::with(&["dnsmasq"]) else {
        return;
    };
    let names = format!("203.0.113.1 {NAME}\n2001:db8:1::1 {NAME}\n");
    let _server = NameServer::start(&world.net, "192.168.1.1", &names);
    world.configure("", NAMED);
    for (dead, expected) in [
        ("203.0.113.1/32", "[2001:db8:1::1]:51820"),
        ("2001:db8:1::1/128", "203.0.113.1:51820"),
    ] {
        world.shell_at(&world.net, &format!("ip route add blackhole {dead}"));
        world.up();
        let is_up = || world.answers(BEHIND[0]).then_some(());
        assert!(eventually(3 * DEADLINE, is_up).is_some(), "{expected}");
        world.is_at(expected);
        world.down();
        world.shell_at(&world.net, &format!("ip route delete blackhole {dead}"));
    }
}

#[test]
fn etc_hosts_is_honoured() {
    let Some(world) = World::new() else { return };
    world.shell(&format!("echo 203.0.113.1 {NAME} >> /etc/hosts"));
    world.configure("", NAMED);
    world.up();
    world.reaches(BEHIND[0]);
    assert_eq!(world.endpoint(), "203.0.113.1:51820");
}
