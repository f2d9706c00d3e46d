//! The hole of DHCP in a kill switch, which any user may try.

use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt::BindToDevice};

use crate::client::world::{EVERYTHING, World};

#[test]
fn the_ports_of_dhcp_lead_only_to_servers_on_the_link() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    for (from, to, is_open) in [
        ("0.0.0.0:68", "255.255.255.255:67", true),
        ("0.0.0.0:68", "192.168.1.1:67", true),
        ("0.0.0.0:68", "203.0.113.254:67", false),
        ("0.0.0.0:68", "198.51.100.7:67", false),
        ("0.0.0.0:68", "192.168.1.1:68", false),
        ("[::]:546", "[ff02::1:2]:547", true),
        ("[::]:546", "[fe80::1]:547", true),
        ("[::]:546", "[2001:db8:2::1]:547", false),
        ("[::]:546", "[2001:db8:ffff::1]:547", false),
        ("[::]:546", "[ff02::1]:547", false),
    ] {
        assert_eq!(leaves(&world, from, to), is_open, "{from} {to}");
    }
    // What the LAN calls its own is none of the internet.
    world.shell("ip route add 198.0.0.0/7 dev eth0 proto dhcp scope link");
    world.shell("ip address add 192.168.7.2/24 dev eth0");
    let is_followed = || {
        world
            .shell("nft list ruleset")
            .contains("192.168.7.0/24")
            .then_some(())
    };
    assert!(convoy_lab::eventually(crate::scene::DEADLINE, is_followed).is_some());
    assert!(!leaves(&world, "0.0.0.0:68", "198.51.100.7:67"));
}

/// Returns whether the kernel lets a datagram out by the cable.
fn leaves(world: &World, from: &str, to: &str) -> bool {
    let send = || {
        // A child that another test forks has a copy of the last one until it executes its program.
        let bind = || UdpSocket::bind(from).ok();
        let socket = convoy_lab::eventually(crate::scene::DEADLINE, bind).unwrap();
        setsockopt(&socket, BindToDevice, &"eth0".into()).unwrap();
        socket.set_broadcast(true).unwrap();
        let to: SocketAddr = to.parse().unwrap();
        socket.send_to(b"anything", to).is_ok()
    };
    world.client.run(send).unwrap()
}
