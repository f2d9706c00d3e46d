//! `reload` applies the difference between two files, and nothing of a bad one.

use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use convoy_lab::eventually;
use nix::sys::signal::{Signal, kill};

use super::{
    lacking::WITHOUT_NFT,
    stream::Stream,
    world::{BEHIND, BEHIND_ONLY, EVERYTHING, World},
};
use crate::{
    scene::DEADLINE,
    traffic::{await_progress, tcp_between, tcp_bytes},
    twins::public_key,
};

#[test]
fn a_running_transfer_does_not_notice_another_peer() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    world.reaches(BEHIND[0]);
    let tunnel = world.tunnel();
    let before = server_sees(&world);
    // Enough that it outlasts both reloads.
    let (bytes, progress) = (2 * tcp_bytes(), AtomicU64::new(0));
    let to = BEHIND[0].parse().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| tcp_between(&world.client, &world.server, to, bytes, &progress));
        await_progress(&progress, bytes / 4);
        world.configure("", &with_peer(9));
        world.convoy(&["reload", "wg0"]).succeeds();
        has_peer(&world, 9, true);
        await_progress(&progress, bytes / 2);
        world.configure("", &with_peer(8));
        kill(world.supervisor(), Signal::SIGHUP).unwrap();
        has_peer(&world, 8, true);
        has_peer(&world, 9, false);
        assert!(progress.load(Ordering::Relaxed) < bytes, "too late");
    });
    assert_eq!(world.tunnel(), tunnel);
    // Neither a new handshake nor another port.
    assert_eq!(server_sees(&world), before);
    assert!(world.shell("ip route").contains("10.99.0.0/16 dev wg0"));
}

#[test]
fn a_signal_that_comes_before_the_tunnel_is_up_counts() {
    let Some(world) = World::new() else { return };
    let edit = "echo AllowedIPs = 10.99.0.0/16 >> /etc/wireguard/wg0.conf";
    world.configure(&format!("PostUp = {edit}; kill -HUP $PPID\n"), BEHIND_ONLY);
    world.up();
    let is_routed = || {
        let routes = world.shell("ip route");
        routes.contains("10.99.0.0/16 dev wg0").then_some(())
    };
    assert!(eventually(DEADLINE, is_routed).is_some());
    world.down();
}

#[test]
fn a_bad_file_changes_nothing() {
    let Some(world) = World::new() else { return };
    let drop_ins = world.client.run_directory().join("etc/wireguard/wg0.d");
    fs::create_dir(&drop_ins).unwrap();
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    let state = || {
        let device = world.shell("wg showconf wg0; wg show wg0 latest-handshakes");
        (device, world.dump(), world.supervisor(), world.tunnel())
    };
    let former = state();
    let another = public_key(9);
    for (interface, peer, says) in [
        ("MTU = x\n", EVERYTHING, "wg0.conf:4:7"),
        ("Adress = 10.8.0.9/24\n", EVERYTHING, "wg0.conf:4:1"),
        ("", "AllowedIPs = 10.8.0.0/33\n", "wg0.conf:7"),
        ("", "[Peer]\nAllowedIPs = 10.9.0.0/24\n", "PublicKey"),
    ] {
        world.configure(interface, peer);
        world.convoy(&["reload", "wg0"]).fails_with(says);
        assert_eq!(state(), former, "{says}");
    }
    // A prefix claimed twice.
    world.configure("", EVERYTHING);
    let claims = format!("[Peer]\nPublicKey = {another}\nAllowedIPs = 0.0.0.0/0\n");
    world.write("wireguard/wg0.d/a.conf", &claims);
    world.convoy(&["reload", "wg0"]).fails_with("0.0.0.0/0");
    world.shell("rm /etc/wireguard/wg0.d/a.conf");
    assert_eq!(state(), former);
    world.shell("rm /etc/wireguard/wg0.conf");
    world.convoy(&["reload", "wg0"]).fails_with("wg0.conf");
    kill(world.supervisor(), Signal::SIGHUP).unwrap();
    stream.flows();
    assert_eq!(state().0, former.0);
}

#[test]
fn a_file_that_the_tunnel_or_the_host_refuses_changes_nothing() {
    let Some(world) = World::new() else { return };
    world.configure("ListenPort = 51999\n", EVERYTHING);
    world.up();
    world.shell(WITHOUT_NFT);
    let stream = Stream::start(&world, BEHIND[0]);
    let state = || (world.shell("wg showconf wg0"), world.dump());
    let former = state();
    let bind = || UdpSocket::bind("0.0.0.0:51997").unwrap();
    let _taken = world.client.run(bind).unwrap();
    for (interface, says) in [
        ("ListenPort = 51997\n", "port 51997"),
        ("ListenPort = 51998\n#convoy: KillSwitch = on\n", "nft"),
    ] {
        let interface = format!("{interface}FwMark = 0x77\nMTU = 1380\nDNS = 10.8.0.1\n");
        world.configure(&interface, &with_peer(9));
        world.convoy(&["reload", "wg0"]).fails_with(says);
        let difference = super::host::difference(&former.1, &world.dump());
        assert_eq!(difference, "", "{interface}");
        assert_eq!(state(), former, "{interface}");
        stream.flows();
    }
}

#[test]
fn after_a_reload_the_host_is_as_after_a_start_with_the_new_file() {
    let Some(world) = World::new() else { return };
    let files = [
        ("", EVERYTHING),
        (
            "DNS = 10.8.0.1, example.org\nMTU = 1380\nListenPort = 51999\n",
            BEHIND_ONLY,
        ),
        (
            "FwMark = 0x77\n#convoy: KillSwitch = on\n#convoy: ExcludedIPs = local\n",
            EVERYTHING,
        ),
        ("Table = 1234\nDNS = 10.8.0.9\n", BEHIND_ONLY),
        ("Table = off\n", EVERYTHING),
    ];
    let started = files.map(|(interface, peer)| {
        world.configure(interface, peer);
        world.up();
        let state = device_and_host(&world);
        world.down();
        state
    });
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    for _ in 0..2 {
        for ((interface, peer), started) in files.iter().zip(&started) {
            world.configure(interface, peer);
            world.convoy(&["reload", "wg0"]).succeeds();
            let reloaded = device_and_host(&world);
            let difference = super::host::difference(started, &reloaded);
            assert_eq!(difference, "", "{interface}");
        }
    }
    world.down();
    world.is_left_as(&before);
}

#[test]
fn peers_in_files_of_their_own_come_and_go_together() {
    let Some(world) = World::new() else { return };
    let drop_ins = world.client.run_directory().join("etc/wireguard/wg0.d");
    fs::create_dir(drop_ins).unwrap();
    world.configure("", EVERYTHING);
    world.up();
    let stream = Stream::start(&world, BEHIND[0]);
    for count in [30, 3, 0] {
        world.shell("rm -f /etc/wireguard/wg0.d/*");
        for number in 0..count {
            let key = public_key(100 + number);
            let text = format!("[Peer]\nPublicKey = {key}\nAllowedIPs = 10.70.{number}.0/24\n");
            world.write(&format!("wireguard/wg0.d/{number}.conf"), &text);
        }
        world.convoy(&["reload", "wg0"]).succeeds();
        let peers = world.shell("wg show wg0 peers").lines().count();
        assert_eq!(peers, 1 + usize::from(count));
        let routes = world.shell("ip route").matches("10.70.").count();
        assert_eq!(routes, usize::from(count));
        stream.flows();
    }
}

fn with_peer(number: u8) -> String {
    let key = public_key(number);
    format!("{EVERYTHING}[Peer]\nPublicKey = {key}\nAllowedIPs = 10.99.0.0/16\n")
}

fn has_peer(world: &World, number: u8, is_there: bool) {
    let key = public_key(number);
    let has = || (world.shell("wg show wg0 peers").contains(&key) == is_there).then_some(());
    assert!(
        eventually(DEADLINE, has).is_some(),
        "peer {number}: not {is_there}"
    );
}

/// The client's endpoint and the time of the last handshake.
fn server_sees(world: &World) -> String {
    let line = "wg show wg0 endpoints; wg show wg0 latest-handshakes";
    world.shell_at(&world.server, line)
}

/// The device's settings and the host, without what differs at each start.
fn device_and_host(world: &World) -> String {
    let settings =
        world.shell("wg show wg0 fwmark; wg show wg0 allowed-ips; wg show wg0 endpoints");
    format!("{settings}\n{}", world.dump())
}
