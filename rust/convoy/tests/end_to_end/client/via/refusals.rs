//! Refused configurations, by name.

use super::Hops;

#[test]
fn neither_tunnel_comes_up_by_itself_while_the_other_needs_it() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    world.up();
    world
        .convoy(&["up", "hop"])
        .fails_with("the tunnel wg0 goes through hop");
    // A second one through the same.
    let other = hops.etc("wg0.conf");
    world.write("wireguard/other.conf", &other);
    world
        .convoy(&["up", "other"])
        .fails_with("other cannot go through hop, as wg0 does");
    hops.reaches_behind();
    world.down();
    world.convoy(&["up", "hop"]).succeeds();
    world
        .convoy(&["up", "wg0"])
        .fails_with("the tunnel hop, through which wg0 goes, is up itself");
    world.convoy(&["down", "hop"]).succeeds();
    world.up();
    hops.reaches_behind();
}

#[test]
fn check_names_the_lines_of_both_files_and_other_ways_to_run_it_refuse_it() {
    let Some(hops) = Hops::new("") else { return };
    let world = &hops.world;
    world.convoy(&["check", "wg0"]).succeeds();
    world
        .convoy(&["up", "--userspace", "wg0"])
        .fails_with("only `convoy up` as root");
    hops.configure_first("Endpoint = 203.0.113.1:51820\nAllowedIPs = 10.0.0.0/8\n");
    let refused = world.convoy(&["check", "wg0"]);
    refused.fails_with("do not hold the endpoint 192.0.2.2");
    world
        .convoy(&["up", "wg0"])
        .fails_with("/etc/wireguard/hop.conf:8");
    assert!(!world.shell("ip -o link").contains("wg0"));
}
