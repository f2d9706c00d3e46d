//! `convoy up` makes the same network as wg-quick with the same file, and more where that leaks.
//!
//! Expected differences: an `unreachable` route behind each default route of ours, one nftables table in place of
//! one for each family, and a reverse path setting that we put back.

use super::{
    host::difference,
    world::{BEHIND_ONLY, EVERYTHING, World},
};

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
            "Endpoint = [2001:db8:1::1]:51820\nAllowedIPs = 0.0.0.0/1, 128.0.0.0/1, ::/0, 10.8.0.7/32\n",
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

fn is_expected(line: &str) -> bool {
    // Behind the default route, for when the device is gone.
    line.starts_with("+ unreachable default")
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
