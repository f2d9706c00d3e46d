//! The local network: what a LAN announces never leads the tunnel's packets out of it.

use convoy_lab::{PacketSocket, eventually};
use etherparse::PacketBuilder;

use crate::{
    client::{
        capture::Capture,
        events::Events,
        kill_switch::Chatter,
        world::{BEHIND, EVERYTHING, World},
    },
    scene::DEADLINE,
};

const CLOSED: &str = "#convoy: KillSwitch = on\n";
const LOCAL: &str = "#convoy: ExcludedIPs = local\n";
const LAN: &str = "#convoy: AllowLAN = yes\n";

#[test]
fn one_router_advertisement_opens_nothing_in_a_closed_kill_switch() {
    let Some(world) = World::new() else { return };
    for (prefix, length) in [([0x2000, 0], 3), ([0x2001, 0xdb8], 32), ([0, 0], 1)] {
        world.configure(&format!("{CLOSED}{LOCAL}"), EVERYTHING);
        world.up();
        let capture = Capture::new(&world);
        let chatter = Chatter::start(&world);
        advertise(&world, prefix, length);
        world.warns(&format!("/{length}"));
        world.reaches(BEHIND[0]);
        leaks_no_inner(&capture);
        let rules = world.shell("nft list ruleset");
        let opened = format!("/{length} accept");
        assert!(!rules.contains(&opened), "{rules}");
        drop(chatter);
        world.down();
        world.shell(&format!(
            "ip -6 route flush proto kernel root {} dev eth0",
            network(prefix, length)
        ));
    }
}

#[test]
fn a_longer_prefix_of_the_lan_takes_neither_the_tunnels_network_nor_its_name_server() {
    let Some(world) = World::new() else { return };
    for options in [format!("{CLOSED}{LAN}"), LOCAL.to_owned(), String::new()] {
        world.configure(&options, EVERYTHING);
        world.up();
        let mut events = Events::follow(&world);
        events.connects(&world);
        let capture = Capture::new(&world);
        advertise(&world, [0xfd08, 0], 80);
        let told = events.until("warning")["warning"].to_string();
        assert!(told.contains("fd08::/80"), "{told}");
        world.warns("fd08::/80");
        // As a DHCP server gives: an address, and classless routes by option 121.
        world.shell(
            "ip address add 10.8.0.99/25 dev eth0 noprefixroute
             ip route add 10.8.0.0/25 dev eth0 proto dhcp scope link
             ip route add 10.8.0.1 via 192.168.1.1 proto dhcp",
        );
        world.warns("10.8.0.0/25");
        for to in ["10.8.0.1", "fd08::1"] {
            assert!(world.way(to).contains("dev wg0"), "{}", world.way(to));
            world.reaches(to);
        }
        leaks_no_inner(&capture);
        drop(events);
        world.down();
        world.shell(
            "ip address del 10.8.0.99/25 dev eth0
             ip route flush proto dhcp; ip -6 route flush root fd08::/80 dev eth0",
        );
    }
}

#[test]
fn classless_routes_of_a_dhcp_server_lead_nothing_past_a_closed_kill_switch() {
    let Some(world) = World::new() else { return };
    for options in [LAN, LOCAL] {
        world.configure(&format!("{CLOSED}{options}"), EVERYTHING);
        world.up();
        let capture = Capture::new(&world);
        world.shell(
            "for to in 0.0.0.0/1 128.0.0.0/1 198.51.100.0/24 10.8.0.0/25; do
                 ip route add $to via 192.168.1.1 proto dhcp
             done
             for to in 198.51.100.0/25 8.0.0.0/7 10.8.0.0/26; do
                 ip route add $to dev eth0 proto dhcp scope link
             done",
        );
        world.warns("198.51.100.0/25");
        let chatter = Chatter::start(&world);
        world.reaches("10.8.0.1");
        leaks_no_inner(&capture);
        assert!(!world.answers("203.0.113.254"), "it is not local");
        drop(chatter);
        world.down();
        world.shell("ip route flush proto dhcp");
    }
}

#[test]
fn the_local_network_of_dhcpcd_is_local() {
    let Some(world) = World::new() else { return };
    world.shell(
        "ip address flush dev eth0; ip address add 192.168.1.2/24 dev eth0 noprefixroute
         ip route add 192.168.1.0/24 dev eth0 proto dhcp src 192.168.1.2 metric 202
         ip route add default via 192.168.1.1 dev eth0 proto dhcp metric 202",
    );
    world.install(include_str!("../inputs/C06-lan-of-dhcpcd.conf"));
    world.up();
    world.reaches("192.168.1.1");
    assert!(!world.answers("203.0.113.254"));
    world.down();
    world.install(include_str!("../inputs/C06-lan-excluded.conf"));
    world.up();
    assert!(world.way("192.168.1.1").contains("dev eth0"));
    let own = world.shell("ip route show table 51820");
    assert!(own.contains("throw 192.168.1.0/24"), "{own}");
    world.reaches("192.168.1.1");
}

#[test]
fn networks_that_other_tunnels_lead_to_are_not_local() {
    let Some(world) = World::new() else { return };
    world.shell(
        "ip tuntap add tun9 mode tun; ip address add 10.66.0.2/24 dev tun9; ip link set tun9 up
         ip address add 10.67.0.2/24 dev eth0",
    );
    world.configure(&format!("{CLOSED}{LAN}"), EVERYTHING);
    world.up();
    let rules = world.shell("nft list table inet convoy_wg0");
    assert!(rules.contains("10.67.0.0/24 accept"), "{rules}");
    assert!(!rules.contains("10.66.0.0/24"), "{rules}");
    // Nor are routes by several devices, or by a gateway.
    world.shell("ip route add 10.68.0.0/24 nexthop dev eth0 nexthop dev tun9");
    world.shell("ip route add 10.69.0.0/24 via 192.168.1.1; ip route add 10.70.0.0/24 dev eth0");
    let is_followed = || {
        let rules = world.shell("nft list table inet convoy_wg0");
        rules.contains("10.70.0.0/24 accept").then_some(rules)
    };
    let rules = eventually(DEADLINE, is_followed).unwrap();
    for other in ["10.68.", "10.69."] {
        assert!(!rules.contains(other), "{rules}");
    }
}

/// Requires that no packet in the clear that belongs into the tunnel has passed on the cable.
fn leaks_no_inner(capture: &Capture) {
    let seen = capture.seen();
    let leaks: Vec<_> = seen.iter().filter(|packet| packet.is_inner()).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
}

fn network([first, second]: [u16; 2], length: u8) -> String {
    format!("{first:x}:{second:x}::/{length}")
}

/// Sends a router advertisement: this network is on the link, and there is no router.
fn advertise(world: &World, [first, second]: [u16; 2], length: u8) {
    let source = [0xfe80, 0, 0, 0, 0, 0, 0, 1_u16];
    let octets = |words: [u16; 8]| std::net::Ipv6Addr::from(words).octets();
    let all = octets([0xff02, 0, 0, 0, 0, 0, 0, 1]);
    // Type, code and checksum come from the builder: then hop limit, flags, lifetime 0, reachable and retransmission time.
    let mut body = vec![0; 8];
    // A prefix that is on the link, for two hours.
    body.extend([3, 4, length, 0x80]);
    body.extend([7_200_u32.to_be_bytes(); 2].concat());
    body.extend([0; 4]);
    body.extend(octets([first, second, 0, 0, 0, 0, 0, 0]));
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1])
        .ipv6(octets(source), all, 255)
        .icmpv6_raw(134, 0, [64, 0, 0, 0]);
    let mut frame = Vec::new();
    builder.write(&mut frame, &body).unwrap();
    let socket = PacketSocket::sending(&world.net, "lan").unwrap();
    socket.send(&frame).unwrap();
}
