//! The kill switch, with real packets.

mod paused;
mod refused;
mod replaced;
mod router;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use convoy_host::{Desired, Event, Host, KillSwitch, Options, close_kill_switch, open_kill_switch};
use convoy_lab::{PacketSocket, eventually};
use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket,
    sockopt::{BindToDevice, Mark},
};

use crate::scene::{PATIENCE, Scene, everything, until, watch_until};

const MARK: u32 = 51820;

/// Time for which a kill switch that another program has removed may be open, beside other tests.
const AT_ONCE: Duration = Duration::from_secs(3);

/// The port of DHCP servers.
const DHCP: u16 = 67;

fn locked(switch: KillSwitch) -> Desired {
    Desired {
        fwmark: Some(MARK),
        kill_switch: Some(switch),
        ..everything()
    }
}

/// Returns whether a datagram by eth0 leaves the host. `mark` is that of the socket.
fn leaves(scene: &Scene, to: IpAddr, mark: u32) -> bool {
    let send = || {
        let any: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).unwrap();
        setsockopt(&socket, BindToDevice, &"eth0".into()).unwrap();
        setsockopt(&socket, Mark, &mark).unwrap();
        socket.send_to(b"leak?", SocketAddr::new(to, 7)).is_ok()
    };
    scene.client.run(send).unwrap()
}

#[test]
fn only_the_tunnel_and_its_own_datagrams_leave() {
    let Some(scene) = Scene::new("only_the_tunnel_and_its_own_datagrams_leave") else {
        return;
    };
    let before = scene.dump();
    let router: IpAddr = [192, 168, 1, 1].into();
    let router6: IpAddr = "fd01::1".parse().unwrap();
    scene.run(async || {
        let mut host = scene.open().await;
        let applied = host.apply(&locked(KillSwitch::default())).await.unwrap();
        assert_eq!(applied.warnings, [""; 0]);
        for (to, mark, is_out) in [
            (router, 0, false),
            (router, MARK, true),
            (router6, 0, false),
            (router6, MARK, true),
            ([203, 0, 113, 1].into(), 0, false),
            ([203, 0, 113, 1].into(), MARK, true),
        ] {
            assert_eq!(leaves(&scene, to, mark), is_out, "{to}, mark {mark}");
        }
        let lan = KillSwitch {
            allow_lan: true,
            ..KillSwitch::default()
        };
        host.apply(&locked(lan)).await.unwrap();
        assert!(leaves(&scene, router, 0));
        assert!(leaves(&scene, router6, 0));
        assert!(!leaves(&scene, [203, 0, 113, 1].into(), 0));
        host.undo().await.unwrap();
    });
    assert!(leaves(&scene, router, 0));
    assert_eq!(scene.dump(), before);
}

#[test]
fn streams_leave_to_their_servers_and_ports_alone_and_only_with_the_mark() {
    let test = "streams_leave_to_their_servers_and_ports_alone_and_only_with_the_mark";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    let router: IpAddr = [192, 168, 1, 1].into();
    let listen = || TcpListener::bind((router, 0)).unwrap();
    let listeners = scene.router.run(|| [listen(), listen()]).unwrap();
    let [server, other] = listeners.each_ref().map(|it| it.local_addr().unwrap());
    let connects = |to: SocketAddr, mark: u32, patience: Duration| {
        let connect = || {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
            setsockopt(&socket, Mark, &mark).unwrap();
            let _ = connect(socket.as_raw_fd(), &SockaddrStorage::from(to));
            let stream = TcpStream::from(socket);
            let has_connected = || stream.peer_addr().is_ok().then_some(());
            eventually(patience, has_connected).is_some()
        };
        scene.client.run(connect).unwrap()
    };
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = locked(KillSwitch::default());
        desired.streams = vec![server];
        host.apply(&desired).await.unwrap();
        assert!(connects(server, MARK, PATIENCE));
        // However long one waits, these do not.
        for (to, mark) in [(server, 0), (other, MARK), (other, 0)] {
            assert!(!connects(to, mark, AT_ONCE / 10), "{to}, mark {mark}");
        }
        desired.streams.clear();
        host.apply(&desired).await.unwrap();
        assert!(!connects(server, MARK, AT_ONCE / 10));
        host.undo().await.unwrap();
    });
}

#[test]
fn packet_sockets_do_not_bypass_it() {
    let Some(scene) = Scene::new("packet_sockets_do_not_bypass_it") else {
        return;
    };
    let capture = PacketSocket::hearing(&scene.router, "eth0").unwrap();
    let sender = PacketSocket::sending(&scene.client, "eth0").unwrap();
    let seen = |port: u16| {
        eventually(PATIENCE, || {
            let frame = capture.receive(PATIENCE).unwrap()?;
            let packet = SlicedPacket::from_ethernet(&frame).ok()?;
            match packet.transport? {
                TransportSlice::Udp(udp) if [port, DHCP].contains(&udp.destination_port()) => {
                    Some(udp.destination_port())
                }
                _ => None,
            }
        })
    };
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        // The first is dropped; the second is a DHCP client's.
        let _ = sender.send(&datagram(5353, 5353));
        sender.send(&datagram(68, DHCP)).unwrap();
        assert_eq!(seen(5353), Some(DHCP));
        host.undo().await.unwrap();
        sender.send(&datagram(5353, 5353)).unwrap();
        assert_eq!(seen(5353), Some(5353));
    });
}

#[test]
fn packet_sockets_do_not_bypass_one_that_closes_before_there_are_routes() {
    let test = "packet_sockets_do_not_bypass_one_that_closes_before_there_are_routes";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    scene.ip("route flush default");
    scene.ip("-6 route flush default");
    // A port of a bridge carries the packets of other machines.
    scene.shell(
        "ip link add br0 type bridge && ip link set br0 up && \
         ip link add port type veth peer port1 && ip link set port master br0",
    );
    let sender = PacketSocket::sending(&scene.client, "eth0").unwrap();
    let is_out = |from, to| sender.send(&datagram(from, to)).is_ok();
    assert!(is_out(5353, 5353));
    scene.run(async || {
        let switch = KillSwitch {
            persistent: true,
            ..KillSwitch::default()
        };
        close_kill_switch("wg0", switch, Some(MARK)).await.unwrap();
        assert!(!is_out(5353, 5353));
        assert!(is_out(68, DHCP));
        let egress = scene.shell("nft list table netdev convoy_wg0");
        for (device, is_guarded) in [
            ("br0", true),
            ("port", false),
            ("lo", false),
            ("wg0", false),
        ] {
            let device = format!("device \"{device}\"");
            assert_eq!(egress.contains(&device), is_guarded, "{egress}");
        }
        // Still no route leads out.
        let mut host = scene.open().await;
        host.apply(&locked(switch)).await.unwrap();
        assert!(!is_out(5353, 5353));
        host.undo().await.unwrap();
        open_kill_switch("wg0").await.unwrap();
    });
    assert!(is_out(5353, 5353));
}

/// A broadcast frame with an IPv4 UDP datagram.
fn datagram(from: u16, to: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [0xff; 6])
        .ipv4([192, 168, 1, 2], [255; 4], 64)
        .udp(from, to);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"leak?").unwrap();
    frame
}

#[test]
fn no_other_program_opens_a_kill_switch_that_the_kernel_lets_this_one_own() {
    let test = "no_other_program_opens_a_kill_switch_that_the_kernel_lets_this_one_own";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        if !scene.shell("nft list ruleset").contains("flags owner") {
            eprintln!("skipped: this kernel knows no owned tables");
            return host.undo().await.unwrap();
        }
        for sabotage in [
            "nft flush ruleset",
            "nft delete table inet convoy_wg0",
            "nft flush table inet convoy_wg0",
            "nft insert rule inet convoy_wg0 output accept",
            "nft delete table netdev convoy_wg0",
        ] {
            scene.shell(&format!("{sabotage} 2> /dev/null || true"));
            assert!(!leaves(&scene, [192, 168, 1, 1].into(), 0), "{sabotage}");
            assert!(host.is_kill_switch_closed().await, "{sabotage}");
        }
        // Another state takes the same tables along.
        let lan = KillSwitch {
            allow_lan: true,
            ..KillSwitch::default()
        };
        host.apply(&locked(lan)).await.unwrap();
        assert!(leaves(&scene, [192, 168, 1, 1].into(), 0));
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        scene.shell("nft flush ruleset");
        assert!(!leaves(&scene, [192, 168, 1, 1].into(), 0));
        // A successor adopts them.
        drop(host);
        let mut host = scene.open().await;
        assert!(host.has_kill_switch().await);
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        scene.shell("nft flush ruleset");
        assert!(!leaves(&scene, [192, 168, 1, 1].into(), 0));
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn a_kill_switch_that_is_flushed_again_and_again_comes_back_at_once() {
    let test = "a_kill_switch_that_is_flushed_again_and_again_comes_back_at_once";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    scene.run(async || {
        let options = Options {
            owns_tables: false,
            ..scene.options()
        };
        let mut host = Host::open("wg0", options).await.unwrap();
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        for _ in 0..12 {
            scene.shell("nft flush ruleset");
            assert!(!host.is_kill_switch_closed().await);
            let begin = Instant::now();
            until(&mut host, |event| *event == Event::KillSwitchRestored).await;
            let time = begin.elapsed();
            assert!(time < AT_ONCE, "{time:?}");
            assert!(host.is_kill_switch_closed().await);
        }
        // Without an interface, too.
        scene.ip("link delete wg0");
        scene.shell("nft flush ruleset");
        until(&mut host, |event| *event == Event::KillSwitchRestored).await;
        assert!(!leaves(&scene, [192, 168, 1, 1].into(), 0));
        host.undo().await.unwrap();
    });
}

#[test]
fn a_flushed_kill_switch_comes_back() {
    let Some(scene) = Scene::new("a_flushed_kill_switch_comes_back") else {
        return;
    };
    scene.run(async || {
        let options = Options {
            owns_tables: false,
            ..scene.options()
        };
        let mut host = Host::open("wg0", options).await.unwrap();
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        scene.shell("nft flush ruleset");
        assert!(leaves(&scene, [192, 168, 1, 1].into(), 0));
        until(&mut host, |event| matches!(event, Event::Restored(_))).await;
        assert!(!leaves(&scene, [192, 168, 1, 1].into(), 0));
        scene.shell("nft insert rule inet convoy_wg0 output accept");
        watch_until(&mut host, || !leaves(&scene, [192, 168, 1, 1].into(), 0)).await;
        host.undo().await.unwrap();
    });
}

#[test]
fn a_persistent_one_outlives_undo_and_recovery_and_loads_without_an_interface() {
    let Some(scene) =
        Scene::new("a_persistent_one_outlives_undo_and_recovery_and_loads_without_an_interface")
    else {
        return;
    };
    let before = scene.dump();
    let router: IpAddr = [192, 168, 1, 1].into();
    let switch = KillSwitch {
        persistent: true,
        ..KillSwitch::default()
    };
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&locked(switch)).await.unwrap();
        host.undo().await.unwrap();
        assert!(!leaves(&scene, router, 0));
        assert!(!scene.ip("rule").contains("51820"));
        drop(scene.open().await.apply(&locked(switch)).await.unwrap());
    });
    scene.run(async || {
        scene.open().await.undo().await.unwrap();
        assert!(!leaves(&scene, router, 0));
        open_kill_switch("wg0").await.unwrap();
    });
    assert_eq!(scene.dump(), before);
    scene.ip("link delete wg0");
    scene.run(async || {
        close_kill_switch("wg0", switch, Some(MARK)).await.unwrap();
        assert!(!leaves(&scene, router, 0));
        assert!(leaves(&scene, router, MARK));
        open_kill_switch("wg0").await.unwrap();
        open_kill_switch("wg0").await.unwrap();
    });
    assert!(leaves(&scene, router, 0));
}

#[test]
fn a_pause_opens_everything_and_ends_by_itself() {
    let Some(scene) = Scene::new("a_pause_opens_everything_and_ends_by_itself") else {
        return;
    };
    let before = scene.dump();
    let router: IpAddr = [192, 168, 1, 1].into();
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        let complete = scene.dump();
        is_open_for_a_while(&scene, &mut host, router).await;
        assert!(scene.ip("route get 203.0.113.1").contains("dev eth0"));
        until(&mut host, |event| *event == Event::Resumed).await;
        assert_eq!(scene.dump(), complete);
        // Nobody ends this one: the process dies.
        is_open_for_a_while(&scene, &mut host, router).await;
        assert!(!host.is_kill_switch_closed().await);
        drop(host);
        let closes = || (!leaves(&scene, router, 0)).then_some(());
        assert!(eventually(PATIENCE, closes).is_some());
        let mut host = scene.open().await;
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        assert_eq!(scene.dump(), complete);
        host.pause(Duration::from_secs(3600)).await.unwrap();
        host.resume().await.unwrap();
        assert_eq!(scene.dump(), complete);
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

/// Pauses it for as short a time as suffices to see it open, which is longer on a busy machine.
async fn is_open_for_a_while(scene: &Scene, host: &mut Host, router: IpAddr) {
    let mut time = Duration::from_millis(300);
    host.pause(time).await.unwrap();
    while !leaves(scene, router, 0) {
        time *= 2;
        assert!(time < PATIENCE, "it does not open");
        host.pause(time).await.unwrap();
    }
}

#[test]
fn without_nft_a_kill_switch_is_an_error_and_the_rest_works() {
    let Some(scene) = Scene::new("without_nft_a_kill_switch_is_an_error_and_the_rest_works") else {
        return;
    };
    let before = scene.dump();
    scene.run(async || {
        let options = Options {
            programs: "/nonexistent".into(),
            ..scene.options()
        };
        let mut host = Host::open("wg0", options.clone()).await.unwrap();
        let refused = host
            .apply(&locked(KillSwitch::default()))
            .await
            .unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("apt-get install nftables"), "{message}");
        host.undo().await.unwrap();
        assert_eq!(scene.dump(), before);

        let mut host = Host::open("wg0", options).await.unwrap();
        let applied = scene.apply(&mut host, &mut everything()).await;
        assert_eq!(applied.warnings, [message]);
        assert!(scene.ip("route get 203.0.113.1").contains("dev wg0"));
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}
