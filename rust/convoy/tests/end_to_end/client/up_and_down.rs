//! `up` makes the network of the file, and `down` puts everything back.

use convoy_lab::eventually;
use nix::sys::signal::Signal;

use super::{
    names::NameServer,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::{
    scene::{DEADLINE, convoy_program},
    twins::{private_key, public_key},
};

const OVER_IPV6: &str = "Endpoint = [2001:db8:1::1]:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n";

#[test]
fn up_and_down_leave_the_host_as_it_was() {
    let Some(world) = World::new() else { return };
    for (interface, peer) in [
        ("", EVERYTHING),
        ("", BEHIND_ONLY),
        ("#convoy: KillSwitch = on\n", OVER_IPV6),
        (
            "DNS = 10.8.0.1, example.org\nMTU = 1380\nListenPort = 51999\n#convoy: KillSwitch = on\n",
            EVERYTHING,
        ),
        (
            "DNS = 10.8.0.1\nFwMark = 0x55\n#convoy: ExcludedIPs = local\n",
            EVERYTHING,
        ),
        (
            "Table = off\nPostUp = ip route add 198.51.100.0/24 dev %i\n\
             PostUp = ip route add 2001:db8:ffff::/48 dev %i\n",
            EVERYTHING,
        ),
    ] {
        world.configure(interface, peer);
        let before = world.dump();
        world.up();
        world.reaches_all_behind();
        assert_ne!(world.dump(), before);
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn names_are_looked_up_through_the_tunnel() {
    let Some(world) = World::with(&["dnsmasq"]) else {
        return;
    };
    world.configure("DNS = 10.8.0.1, example.org\n", EVERYTHING);
    let names = "198.51.100.1 inside.example.org\n";
    let _inside = NameServer::start(&world.server, "10.8.0.1", names);
    world.up();
    // The search domain completes it.
    assert!(world.shell("getent hosts inside").contains(BEHIND[0]));
    let file = world.read("resolv.conf");
    assert!(file.contains("nameserver 10.8.0.1\n"), "{file}");
    world.down();
    assert_eq!(world.read("resolv.conf"), "nameserver 192.168.1.1\n");
}

#[test]
fn a_path_and_a_name_mean_the_same_tunnel() {
    let Some(world) = World::new() else { return };
    world.configure("", BEHIND_ONLY);
    let before = world.dump();
    world.convoy(&["up", "/etc/wireguard/wg0.conf"]).succeeds();
    world.reaches(BEHIND[0]);
    world.down();
    world.is_left_as(&before);
    let mut relative = world.client.command("sh");
    relative.args(["-c", "cd /etc/wireguard && exec \"$0\" up ./wg0.conf"]);
    relative.arg(convoy_program());
    world.start_command(relative).wait().succeeds();
    world.convoy(&["reload", "wg0"]).succeeds();
    world
        .convoy(&["down", "/etc/wireguard/wg0.conf"])
        .succeeds();
    world.is_left_as(&before);
}

#[test]
fn in_the_foreground_a_signal_ends_it_and_puts_everything_back() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    let before = world.dump();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let running = world.start(&["up", "wg0", "-f"]);
        world.reaches_all_behind();
        world.status_becomes("state", "up");
        running.signal(signal);
        running.wait().succeeds();
        world.is_left_as(&before);
    }
}

#[test]
fn what_is_not_up_cannot_go_down_or_be_reloaded() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    for command in ["down", "reload"] {
        world.convoy(&[command, "wg0"]).fails_with("is not up");
    }
    world.is_left_as(&before);
}

#[test]
fn a_missing_file_and_a_wrong_command_line_change_nothing() {
    let Some(world) = World::new() else { return };
    let before = world.dump();
    let missing = world.convoy(&["up", "wg0"]);
    missing.fails_with("/etc/wireguard/wg0.conf");
    world.convoy(&["up"]).ends_with(2);
    world.convoy(&["down"]).ends_with(2);
    world.is_left_as(&before);
}

#[test]
fn down_all_ends_every_tunnel() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    let (own, server) = (private_key(3), public_key(2));
    world.write(
        "wireguard/wg1.conf",
        &format!(
            "[Interface]\nPrivateKey = {own}\nAddress = 10.7.0.2/24\nDNS = 10.7.0.1\n\
             [Peer]\nPublicKey = {server}\nEndpoint = 203.0.113.2:51820\nAllowedIPs = 10.7.0.0/24\n"
        ),
    );
    let before = world.dump();
    for name in ["wg0", "wg1"] {
        world.convoy(&["up", name]).succeeds();
    }
    world.reaches(BEHIND[0]);
    world.convoy(&["down", "--all"]).succeeds();
    world.is_left_as(&before);
}

#[test]
fn what_others_remove_comes_back() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    let up = world.dump();
    for sabotage in [
        "ip rule delete not fwmark 51820 table 51820",
        "ip -6 route flush table 51820",
        "ip address delete 10.8.0.2/24 dev wg0",
        "nft flush ruleset",
        "echo nameserver 192.0.2.53 > /etc/resolv.conf",
    ] {
        world.shell(sabotage);
        let is_back = || (world.dump() == up).then_some(());
        assert!(eventually(DEADLINE, is_back).is_some(), "{sabotage}");
    }
    world.reaches_all_behind();
    world.down();
    // What another program wrote last is what it gets back.
    world.shell("echo nameserver 192.168.1.1 > /etc/resolv.conf");
    world.is_left_as(&before);
}
