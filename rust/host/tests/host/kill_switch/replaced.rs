//! Rules that replace others, while programs flood the cable.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_host::{Desired, KillSwitch, close_kill_switch, open_kill_switch};
use convoy_lab::{PacketSocket, eventually};
use etherparse::{SlicedPacket, TransportSlice};
use nix::sys::socket::{setsockopt, sockopt::BindToDevice};

use super::{MARK, datagram, leaves};
use crate::scene::{PATIENCE, Scene, prefixes};

const LOADS: u32 = 80;
/// The port that the flood goes to.
const DISCARD: u16 = 9;

#[test]
fn nothing_leaves_while_rules_replace_others() {
    let Some(scene) = Scene::new("nothing_leaves_while_rules_replace_others") else {
        return;
    };
    scene.shell(
        "ip link add eth1 type veth peer eth2 && ip address add 192.168.2.1/24 dev eth1 && ip link set eth1 up",
    );
    let capture = PacketSocket::hearing(&scene.router, "eth0").unwrap();
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&variant(0)).await.unwrap();
        let flood = Flood::start(&scene);
        for number in 1..=LOADS {
            if number % 8 == 0 {
                close_kill_switch("wg0", KillSwitch::default(), Some(MARK + 7))
                    .await
                    .unwrap();
            }
            host.apply(&variant(number)).await.unwrap();
        }
        let mut leaks = 0;
        while let Some(frame) = capture.receive(Duration::from_micros(1)).unwrap() {
            leaks += usize::from(is_flood(&frame));
        }
        assert_eq!(leaks, 0, "packets that left in {LOADS} loads");
        let router = [192, 168, 1, 1].into();
        let last = variant(LOADS).fwmark.unwrap();
        for mark in [MARK, MARK + 1, MARK + 7] {
            assert_eq!(leaves(&scene, router, mark), mark == last, "mark {mark}");
        }
        host.undo().await.unwrap();
        let leak = || {
            capture
                .receive(PATIENCE)
                .unwrap()
                .filter(|frame| is_flood(frame))
        };
        eventually(PATIENCE, leak).expect("an open switch lets the flood out");
        drop(flood);
    });
}

#[test]
fn what_others_and_older_versions_left_in_the_tables_goes() {
    let Some(scene) = Scene::new("what_others_and_older_versions_left_in_the_tables_goes") else {
        return;
    };
    let list = || {
        scene.shell(
            "nft -s list ruleset | sed -E '/^\\tflags ?(owner)?$/d; /^$/d; s/ # progname .*//'",
        )
    };
    let close = || {
        let closed = async || close_kill_switch("wg0", KillSwitch::default(), Some(MARK)).await;
        scene.run(closed).unwrap();
        list()
    };
    let closed = close();
    for left in [
        "add chain inet convoy_wg0 mine { type filter hook output priority 1; policy drop; }
         add chain inet convoy_wg0 other
         add rule inet convoy_wg0 mine jump other",
        "delete chain inet convoy_wg0 forward
         add chain inet convoy_wg0 forward { type filter hook input priority 7; policy accept; }",
        "flush chain inet convoy_wg0 output
         add chain inet convoy_wg0 output { type filter hook output priority 0; policy accept; }",
        "add table inet convoy_wg0 { flags dormant; }",
        "delete table netdev convoy_wg0
         add table netdev convoy_wg0
         add chain netdev convoy_wg0 underlay {
             type filter hook egress devices = { eth0, wg1 } priority 0; policy drop;
         }
         add rule netdev convoy_wg0 underlay meta mark 7 accept",
        "flush ruleset",
    ] {
        // The kernel refuses some of it for tables that can be owned.
        scene.shell(&format!("echo '{left}' | nft -f - || true"));
        if list() == closed {
            eprintln!("refused: {left}");
            continue;
        }
        let again = close();
        assert_eq!(sorted(&again), sorted(&closed), "{left}");
    }
    scene.run(async || open_kill_switch("wg0").await.unwrap());
}

/// Without the order of chains.
fn sorted(listing: &str) -> Vec<&str> {
    let mut chains: Vec<_> = listing.split("\n\n").map(str::trim).collect();
    chains.sort_unstable();
    chains
}

/// Kill switches of which each differs from the one before in everything that can change.
fn variant(number: u32) -> Desired {
    let near = ["192.168.1.1", "192.168.2.9"].map(|endpoint| endpoint.parse().unwrap());
    Desired {
        mtu: Some(1420),
        endpoints: near[..1 + number as usize % 2].to_vec(),
        fwmark: Some(MARK + number % 2),
        excluded: prefixes(&[&format!("10.{}.0.0/16", number % 3)]),
        kill_switch: Some(KillSwitch::default()),
        ..Desired::default()
    }
}

/// Sends to the router in the clear, in three ways and as fast as one thread can, until it is dropped: the other
/// processor loads rules.
struct Flood {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(scene: &Scene) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let below = PacketSocket::sending(&scene.client, "eth0").unwrap();
        let frame = datagram(DISCARD, DISCARD);
        let v4 = socket(scene, Ipv4Addr::UNSPECIFIED, "192.168.1.1");
        let v6 = socket(scene, Ipv6Addr::UNSPECIFIED, "fd01::1");
        let stop = Arc::clone(&is_over);
        // A closed switch refuses all of it.
        let send = move || {
            while !stop.load(Ordering::Relaxed) {
                drop(below.send(&frame));
                drop(v4.send(b"leak?"));
                drop(v6.send(b"leak?"));
            }
        };
        Self {
            is_over,
            thread: Some(thread::spawn(send)),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn socket(scene: &Scene, any: impl Into<IpAddr> + Send, router: &str) -> UdpSocket {
    let connect = || {
        let socket = UdpSocket::bind(SocketAddr::new(any.into(), 0)).unwrap();
        setsockopt(&socket, BindToDevice, &"eth0".into()).unwrap();
        socket.connect((router, DISCARD)).unwrap();
        socket
    };
    scene.client.run(connect).unwrap()
}

fn is_flood(frame: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(frame).ok();
    match packet.and_then(|packet| packet.transport) {
        Some(TransportSlice::Udp(udp)) => udp.destination_port() == DISCARD,
        _ => false,
    }
}
