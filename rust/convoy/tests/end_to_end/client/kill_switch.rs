//! The kill switch, while every program on the client tries to get out.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_lab::PacketSocket;
use etherparse::PacketBuilder;
use nix::sys::socket::{setsockopt, sockopt::BindToDevice};

use super::{
    capture::Capture,
    process::{crash, kill_all},
    world::{BEHIND, EVERYTHING, World},
};

const CLOSED: &str = "#convoy: KillSwitch = on\n";
/// Behind the tunnel, and on its way, in either family.
const TARGETS: [&str; 6] = [
    "198.51.100.1:7",
    "[2001:db8:ffff::1]:7",
    "203.0.113.254:7",
    "[2001:db8:1::fe]:7",
    "192.168.1.1:7",
    "192.168.1.255:7",
];

#[test]
fn nothing_leaves_while_the_processes_are_killed_and_started_again() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    let before = world.dump();
    let capture = Capture::new(&world);
    let chatter = Chatter::start(&world);
    capture.until(|packet| packet.is_leak());
    world.up();
    capture.seen();
    world.reaches_all_behind();
    capture.leaks_nothing("up");
    let tunnel = world.tunnel();
    crash(tunnel);
    world.reaches_all_behind();
    capture.leaks_nothing("tunnel killed");
    crash(world.supervisor());
    world.reaches_all_behind();
    world.up();
    world.reaches_all_behind();
    capture.leaks_nothing("supervisor killed");
    kill_all(&world);
    assert!(!world.answers(BEHIND[0]));
    world.up();
    world.reaches_all_behind();
    capture.leaks_nothing("both killed");
    world.convoy(&["reload", "wg0"]).succeeds();
    world.shell("wg set wg0 fwmark 0x1234");
    world.reaches_all_behind();
    capture.leaks_nothing("changed");
    world.down();
    capture.until(|packet| packet.is_leak());
    drop(chatter);
    world.is_left_as(&before);
}

#[test]
fn the_local_network_stays_reachable_if_allowed() {
    let Some(world) = World::new() else { return };
    for (switch, is_open) in [
        ("", false),
        ("#convoy: AllowLAN = yes\n", true),
        ("#convoy: ExcludedIPs = local\n", true),
    ] {
        world.configure(&format!("{CLOSED}{switch}"), EVERYTHING);
        world.up();
        world.reaches(BEHIND[0]);
        assert_eq!(world.answers("192.168.1.1"), is_open);
        assert!(
            !world.answers("203.0.113.254"),
            "it is not behind the tunnel"
        );
        world.down();
    }
}

#[test]
fn a_persistent_one_outlives_down_until_it_is_opened() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = persistent\n", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    for _ in 0..2 {
        world.down();
        assert!(!world.answers("203.0.113.254"));
        world.up();
        world.reaches(BEHIND[0]);
    }
    world
        .convoy(&["down", "wg0", "--open-kill-switch"])
        .succeeds();
    world.reaches("203.0.113.254");
    world.is_left_as(&before);
}

#[test]
fn nothing_leaves_between_boot_and_the_first_up() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = persistent\n", EVERYTHING);
    let before = world.dump();
    world.shell("ip route delete default; ip -6 route delete default");
    let capture = Capture::new(&world);
    let chatter = Chatter::start(&world);
    capture.until(|packet| packet.is_leak());
    world
        .convoy(&["up", "wg0", "--only-kill-switch"])
        .succeeds();
    capture.seen();
    assert!(!world.answers("192.168.1.1"));
    world.shell("ip route add default via 192.168.1.1; ip route add default via 2001:db8:2::1");
    world.up();
    world.reaches_all_behind();
    capture.leaks_nothing("up");
    drop(chatter);
    world
        .convoy(&["down", "wg0", "--open-kill-switch"])
        .succeeds();
    world.is_left_as(&before);
}

/// Keeps sending to all [`TARGETS`] in the clear, in every way that a program has; ends when dropped.
pub(super) struct Chatter {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Chatter {
    pub(super) fn start(world: &World) -> Self {
        Self::start_on(world, &["eth0"])
    }

    /// Binds sockets to each of these cables, besides those that leave by the routes.
    pub(super) fn start_on(world: &World, cables: &[&str]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let sockets = world.client.run(|| sockets(cables)).unwrap();
        let below = PacketSocket::sending(&world.client, "eth0").unwrap();
        let over = Arc::clone(&is_over);
        let talk = move || {
            while !over.load(Ordering::Relaxed) {
                for target in TARGETS.map(|target| target.parse::<SocketAddr>().unwrap()) {
                    for (socket, _) in sockets.iter().filter(|(_, v4)| *v4 == target.is_ipv4()) {
                        // Refused, as it should be.
                        let _ = socket.send_to(b"leak?", target);
                    }
                }
                let _ = below.send(&frame());
                thread::sleep(Duration::from_millis(2));
            }
        };
        let thread = Some(thread::spawn(talk));
        Self { is_over, thread }
    }
}

impl Drop for Chatter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One that leaves by the routes and one bound to each cable, for either family; with whether it is IPv4's.
fn sockets(cables: &[&str]) -> Vec<(UdpSocket, bool)> {
    let any: [SocketAddr; 2] = [
        (Ipv4Addr::UNSPECIFIED, 0).into(),
        (Ipv6Addr::UNSPECIFIED, 0).into(),
    ];
    let open = |(any, cable): (SocketAddr, Option<&str>)| {
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_broadcast(any.is_ipv4()).unwrap();
        if let Some(cable) = cable {
            setsockopt(&socket, BindToDevice, &cable.into()).unwrap();
        }
        (socket, any.is_ipv4())
    };
    let ways = cables.iter().copied().map(Some).chain([None]);
    ways.flat_map(|way| any.map(|any| (any, way)))
        .map(open)
        .collect()
}

/// Makes a frame that a program sends past the IP stack.
fn frame() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [0xff; 6])
        .ipv4([192, 168, 1, 2], [203, 0, 113, 254], 64)
        .udp(5353, 5353);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"leak?").unwrap();
    frame
}
