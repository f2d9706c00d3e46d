//! Paths behind the peer that are narrower than the tunnel.
//!
//! ```text
//! client ── convoy up --userspace ══ server ── 1,300 bytes ── far
//! ```

use std::{
    io::{Read as _, Write as _},
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use convoy_lab::{Namespace, eventually};

use super::{
    super::super::{
        user::world,
        userspace::{
            down,
            ports::{ECHO, connect, echo, echo_datagrams, up},
        },
        world::World,
    },
    ENGINES,
};
use crate::{
    hub::forward,
    scene::{DEADLINE, output_of},
};

/// The far host, by family.
const FAR: [&str; 2] = ["198.51.100.130", "2001:db8:ffff:1::2"];

#[test]
fn datagrams_longer_than_a_link_behind_the_peer_arrive_once_its_router_has_said_so() {
    let Some((world, far)) = with_far_host() else {
        return;
    };
    let forwards = [
        format!("-L=8001:{}:{ECHO}/udp", FAR[0]),
        format!("-L=8002:[{}]:{ECHO}/udp", FAR[1]),
    ];
    for at in FAR {
        echo_datagrams(&far, (at, ECHO));
    }
    for engine in ENGINES {
        world.shell_at(
            &world.server,
            "ip route flush cache; ip -6 route flush cache",
        );
        up(&world, &[&forwards[0], &forwards[1], engine]);
        for port in [8001, 8002] {
            let lost = lost_before_an_answer(&world.client, port, &[b'x'; 1_352]);
            assert!(lost <= 2, "{engine} {port}: {lost}");
        }
        down(&world);
    }
}

#[test]
fn a_stream_finds_its_way_through_a_link_that_swallows_long_packets() {
    let Some((world, far)) = with_far_host() else {
        return;
    };
    for icmp in [
        "icmp type destination-unreachable",
        "icmpv6 type packet-too-big",
    ] {
        let rule = format!(
            "nft 'add table inet deaf; add chain inet deaf output {{ type filter hook output priority 0; }}; \
             add rule inet deaf output {icmp} drop'"
        );
        world.shell_at(&world.server, &rule);
    }
    for at in FAR {
        echo(&far, (at, ECHO));
    }
    let forwards = [
        format!("-L=8001:{}:{ECHO}", FAR[0]),
        format!("-L=8002:[{}]:{ECHO}", FAR[1]),
    ];
    for engine in ENGINES {
        up(&world, &[&forwards[0], &forwards[1], engine]);
        for port in [8001, 8002] {
            let mut stream = connect(&world.client, ("127.0.0.1", port)).unwrap();
            let sent = vec![b'x'; 200_000];
            let (mut writer, data) = (stream.try_clone().unwrap(), sent.clone());
            thread::spawn(move || writer.write_all(&data));
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).unwrap();
            assert!(back == sent, "{engine} {port}");
        }
        down(&world);
    }
}

fn with_far_host() -> Option<(World, Namespace)> {
    let world = world("DNS = 10.8.0.1\n")?;
    let far = world.lab().namespace("far").unwrap();
    let near = ["198.51.100.129/30", "2001:db8:ffff:1::1/64"];
    let ends = ["198.51.100.130/30", "2001:db8:ffff:1::2/64"];
    let link = world.lab();
    link.veth(&world.server, "far0", &near, &far, "eth0", &ends, 1_300)
        .unwrap();
    forward(&world.server);
    world.shell_at(
        &far,
        // It announces segments that are too long for its link.
        "ip route add default via 198.51.100.129 advmss 1360
         ip route add default via 2001:db8:ffff:1::1 advmss 1340",
    );
    // Addresses of IPv6 are tentative at first.
    for at in FAR {
        let is_there = || {
            output_of(
                &world.server,
                "sh",
                &["-c", &format!("ping -c 1 -W 1 {at} || true")],
            )
        };
        let is_there = || is_there().contains(" 0% packet loss").then_some(());
        assert!(eventually(DEADLINE, is_there).is_some(), "{at}");
    }
    Some((world, far))
}

/// Sends a datagram again and again; returns how many were lost before one was answered.
fn lost_before_an_answer(place: &Namespace, port: u16, datagram: &[u8]) -> usize {
    let socket = place.run(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let socket = socket.unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let (start, mut lost) = (Instant::now(), 0);
    let mut answer = [0; 2_048];
    while start.elapsed() < DEADLINE {
        socket.send(datagram).unwrap();
        match socket.recv(&mut answer) {
            Ok(length) => {
                assert_eq!(length, datagram.len());
                return lost;
            }
            Err(_) => lost += 1,
        }
    }
    panic!("no answer after {lost} datagrams");
}
