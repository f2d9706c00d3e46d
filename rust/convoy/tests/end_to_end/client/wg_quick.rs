//! `convoy up` makes the same network as wg-quick with the same file, and more where that leaks.
//!
//! Expected differences: an `unreachable` route behind each default route of ours, one nftables table in place of
//! one for each family, and a reverse path setting that we put back.
//!
//! `convoy up --adopt` takes an interface over from it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
};

use super::{
    capture::Capture,
    host::difference,
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};

const CLOSED: &str = "#convoy: KillSwitch = on\n";
/// wireguard-go, which removes its socket half a second late.
const SLOW: &str = r#"#!/bin/sh
    strace -f -qq -o /dev/null -e trace=unlinkat -e inject=unlinkat:delay_enter=500000 \
        wireguard-go -f "$1" > /dev/null 2>&1 &
    until test -S "/run/wireguard/$1.sock"; do sleep 0.05; done
"#;

#[test]
fn addresses_routes_and_rules_are_those_of_wg_quick() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    for (interface, peer) in [
        ("", EVERYTHING),
        (
            "MTU = 1380\nListenPort = 51999\nFwMark = 0x77\n",
            EVERYTHING,
        ),
        ("", BEHIND_ONLY),
        ("Table = 1234\n", BEHIND_ONLY),
        ("Table = off\n", EVERYTHING),
        (
            "",
            "Endpoint = [2001:db8:1::1]:51820\nAllowedIPs = 0.0.0.0/1, 128.0.0.0/2, ::/0, 10.8.0.7/32\n",
        ),
        (
            "Address = 10.77.0.1/32, 10.8.0.77/24\n",
            "AllowedIPs = 0.0.0.0/0, 10.8.0.0/16\n",
        ),
    ] {
        world.configure(interface, peer);
        let before = world.dump();
        world.shell("wg-quick up wg0");
        let theirs = network(&world);
        world.shell("wg-quick down wg0");
        world.shell("echo 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark");
        world.is_left_as(&before);
        world.up();
        let ours = network(&world);
        world.down();
        world.is_left_as(&before);
        let unexpected: Vec<_> = difference(&theirs, &ours)
            .lines()
            .filter(|line| !is_expected(line))
            .map(str::to_owned)
            .collect();
        assert!(unexpected.is_empty(), "{interface}{peer}: {unexpected:#?}");
    }
}

#[test]
fn a_running_tunnel_is_taken_over_without_a_leak() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    world.configure(CLOSED, EVERYTHING);
    let before = world.dump();
    world.shell("wg-quick up wg0");
    let theirs = world.dump();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    let refused = world.convoy(&["up", "wg0"]).fails_with("as wg-quick ");
    for fix in ["`wg-quick down wg0`", "`convoy up --adopt`"] {
        assert!(refused.stderr.contains(fix), "{refused:?}");
    }
    assert_eq!(world.dump(), theirs);
    streams.iter().for_each(Stream::flows);

    let capture = Capture::new(&world);
    world.convoy(&["up", "wg0", "--adopt"]).succeeds();
    streams.iter().for_each(Stream::flows);
    let seen = capture.leaks_nothing("taken over");
    assert!(seen.iter().any(|packet| packet.is_datagram()));
    world.status_becomes("state", "up");
    assert_eq!(world.wg(1)[3], "0.0.0.0/0,::/0");
    drop(streams);
    world.down();
    assert_eq!(left_behind(&world), "1\n");
    world.is_left_as(&before);
}

#[test]
fn a_program_that_ends_long_after_its_interface_is_waited_for() {
    let Some(world) = World::with(&["strace", "wg-quick"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    let slow = world.client.run_directory().join("slow");
    fs::write(&slow, SLOW).unwrap();
    fs::set_permissions(&slow, Permissions::from_mode(0o755)).unwrap();
    let before = world.dump();
    world.shell("WG_QUICK_USERSPACE_IMPLEMENTATION=/run/slow wg-quick up wg0");
    world.reaches_all_behind();
    can_be_taken_over(&world, &before);
}

#[test]
fn what_wg_quick_cannot_take_down_stays_as_it_is() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    world.configure(
        &format!("{CLOSED}PreDown = test -e /run/may-go\n"),
        EVERYTHING,
    );
    let before = world.dump();
    world.shell("wg-quick up wg0");
    let theirs = world.dump();
    let streams = BEHIND.map(|to| Stream::start(&world, to));
    world
        .convoy(&["up", "wg0", "--adopt"])
        .fails_with("`wg-quick down /etc/wireguard/wg0.conf` failed");
    assert_eq!(world.dump(), theirs);
    streams.iter().for_each(Stream::flows);
    drop(streams);
    world.shell("touch /run/may-go");
    can_be_taken_over(&world, &before);
}

#[test]
fn what_a_network_service_has_set_up_is_not_taken_over() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    world.configure(CLOSED, EVERYTHING);
    world.shell("wg-quick up wg0");
    let link = world.shell("ip -o link show wg0");
    let index = link.split(':').next().unwrap();
    let manager = format!("/run/NetworkManager/devices/{index}");
    let networkd = format!("/run/systemd/netif/links/{index}");
    let says = |file: &str, text: &str| {
        world.shell(&format!(
            "mkdir -p $(dirname {file}); printf '{text}' > {file}"
        ));
    };
    let connection = "connection-uuid=3d1f7b1e-5d0b-4b83-a39a-d1b7dc0f8a55";
    let network = "NETWORK_FILE=/etc/systemd/network/wg0.network";
    for (owner, file, text) in [
        (
            "NetworkManager",
            &manager,
            format!("{connection}\\nnm-owned=true\\n"),
        ),
        ("systemd-networkd", &networkd, format!("{network}\\n")),
    ] {
        says(file, &text);
        let theirs = world.dump();
        for arguments in [&["up", "wg0"][..], &["up", "wg0", "--adopt"]] {
            let refused = world.convoy(arguments);
            refused.fails_with(&format!("{owner} owns it (fix: "));
        }
        assert_eq!(world.dump(), theirs);
        world.reaches_all_behind();
        world.shell(&format!("rm {file}"));
    }
    // It only looks on.
    says(&manager, &format!("{connection}\\nnm-owned=false\\n"));
    world
        .convoy(&["up", "wg0"])
        .fails_with("`convoy up --adopt`");
    world.convoy(&["up", "wg0", "--adopt"]).succeeds();
    world.reaches_all_behind();
}

/// Takes the interface over, and down.
fn can_be_taken_over(world: &World, before: &str) {
    world.convoy(&["up", "wg0", "--adopt"]).succeeds();
    world.reaches_all_behind();
    world.down();
    left_behind(world);
    world.is_left_as(before);
}

/// The reverse path setting that wg-quick has left, which this puts back.
fn left_behind(world: &World) -> String {
    let setting = "/proc/sys/net/ipv4/conf/all/src_valid_mark";
    world.shell(&format!("cat {setting}; echo 0 > {setting}"))
}

fn is_expected(line: &str) -> bool {
    // Behind the default route, for when the device is gone.
    line.starts_with("+ unreachable default")
        // Before the routes of the host: the tunnel's own networks.
        || line.starts_with("+") && (line.contains("dev wg0 table ") || line.contains("fwmark") && line.contains("suppress"))
}

/// Addresses, link, routes, rules and the device's settings.
fn network(world: &World) -> String {
    let all = world.shell(
        "ip -brief address; ip -o link | sed 's/^[0-9]*: //; s/qdisc.*//'
         ip -4 rule | sed 's/^/4: /'; ip -6 rule | sed 's/^/6: /'
         for family in 4 6; do ip -$family route show table all | sed 's/ proto [a-z]*//'; done
         wg show wg0 fwmark; wg show wg0 allowed-ips; wg show wg0 endpoints
         cat /proc/sys/net/ipv4/conf/all/src_valid_mark",
    );
    // The kernel adds the local route of an IPv6 address late.
    let is_settled = |line: &&str| !line.starts_with("local fd08::");
    let lines = all.lines().map(str::trim_end);
    let mut lines: Vec<_> = lines.filter(is_settled).collect();
    lines.sort_unstable();
    lines.join("\n")
}
