//! A tunnel through another, with TUN devices in memory: the first hop is a tunnel whose TUN a thread connects with the second.

mod common;

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use convoy_proto::{
    config::{AllowedIpUpdate, DeviceUpdate, PeerUpdate, Prefix, PrivateKey},
    counters::DropReason,
    noise::Identity,
};
use convoy_tunnel::{ApplyError, Options, Outer};

use common::{End, PATIENCE, VNET, eventually, udp};

/// Address of the client inside its tunnel to the first hop.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// Address of the second hop, as the first one reaches it.
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

#[test]
fn packets_pass_through_both_tunnels_and_a_new_port_keeps_both_sessions() {
    let scene = Scene::new();
    let Scene { client, second, .. } = &scene;
    for round in 0..3u8 {
        client.send(&udp(client.inner, second.inner, &[round; 100]));
        assert_eq!(second.receive_payload(), [round; 100]);
        second.send(&udp(second.inner, client.inner, &[round; 200]));
        assert_eq!(client.receive_payload(), [round; 200]);
        // Only the sockets change: the second hop sees the first hop's address.
        let update = DeviceUpdate {
            listen_port: Some(0),
            ..DeviceUpdate::default()
        };
        client.tunnel.apply(update).expect("another port");
    }
    let snapshot = client.snapshot();
    let outer = snapshot.outer.expect("an outer tunnel");
    assert_eq!((snapshot.peers.len(), outer.peers.len()), (1, 1));
    assert_eq!(snapshot.counters.handshakes, 1);
    assert_eq!(outer.counters.handshakes, 1);
    assert!(outer.peers[0].rx_bytes > snapshot.peers[0].rx_bytes);
}

#[test]
fn a_burst_arrives_whole_and_in_order_within_the_mtu() {
    let scene = Scene::new();
    let Scene { client, second, .. } = &scene;
    client.tunnel.set_mtu(1340);
    let largest = |n: u8| vec![n; 1340 - 28];
    for n in 0..40u8 {
        client.send(&udp(client.inner, second.inner, &largest(n)));
    }
    for n in 0..40u8 {
        assert_eq!(second.receive_payload(), largest(n));
    }
}

#[test]
fn no_packet_of_the_outer_tunnel_is_padded_beyond_its_mtu() {
    const OUTER_MTU: u64 = 1420;
    const DATA_OVERHEAD: u64 = 32;
    let scene = Scene::new();
    let Scene { client, second, .. } = &scene;
    // What is left of it for packets to a second hop at an IPv4 address.
    let mtu = OUTER_MTU as u16 - convoy_via::overhead(true);
    client.tunnel.set_mtu(mtu);
    let sent = || client.snapshot().outer.expect("an outer tunnel").peers[0].tx_bytes;
    for len in mtu - 20..=mtu {
        let before = sent();
        let payload = vec![7; usize::from(len) - 28];
        client.send(&udp(client.inner, second.inner, &payload));
        assert_eq!(second.receive_payload(), payload);
        let datagram = sent() - before;
        assert!(datagram <= OUTER_MTU + DATA_OVERHEAD, "{len}: {datagram}");
    }
}

#[test]
fn nothing_is_sent_before_the_outer_tunnel_is_configured() {
    let scene = Scene::start(false);
    let Scene { client, second, .. } = &scene;
    client.send(&udp(client.inner, second.inner, b"held"));
    eventually(|| drops(client, DropReason::OutboundViaNoAddress) > 0);
    assert_eq!(second.snapshot().peers[0].rx_bytes, 0);
    scene.configure();
    assert_eq!(second.receive_payload(), b"held");
}

#[test]
fn an_outer_tunnel_that_changes_keeps_the_sessions_of_peers_that_stay() {
    let scene = Scene::new();
    let Scene { client, second, .. } = &scene;
    scene.configure();
    client.send(&udp(client.inner, second.inner, b"still"));
    assert_eq!(second.receive_payload(), b"still");
    let outer = client.snapshot().outer.expect("an outer tunnel");
    assert_eq!(outer.counters.handshakes, 1);
    // Without its only peer, nothing can leave.
    let mut outer = scene.outer();
    outer.peers.clear();
    on_runtime(client.tunnel.set_outer(outer)).expect("it runs");
    client.send(&udp(client.inner, second.inner, b"lost"));
    eventually(|| drops(client, DropReason::OutboundNoRoute) > 0);
}

#[test]
fn a_peer_of_the_outer_tunnel_cannot_be_one_of_the_inner_one_as_well() {
    let scene = Scene::new();
    let Scene { client, second, .. } = &scene;
    let first = scene.first.public_key();
    let apply = |peer: PeerUpdate| {
        let update = DeviceUpdate {
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        client.tunnel.apply(update)
    };
    let refused = apply(PeerUpdate::new(first));
    assert!(matches!(refused, Err(ApplyError::PeerOfOuter)));
    assert_eq!(client.snapshot().peers.len(), 1);
    // These change nothing, as without an outer tunnel.
    for harmless in [
        PeerUpdate {
            remove: true,
            ..PeerUpdate::new(first)
        },
        PeerUpdate {
            update_only: true,
            ..PeerUpdate::new(first)
        },
    ] {
        apply(harmless).expect("nothing to do");
    }
    let mut outer = scene.outer();
    outer.peers.clear();
    on_runtime(client.tunnel.set_outer(outer)).expect("it runs");
    apply(PeerUpdate::new(first)).expect("it is no peer of the outer tunnel any more");
    scene.configure();
    client.send(&udp(client.inner, second.inner, b"still"));
    assert_eq!(second.receive_payload(), b"still");
}

struct Scene {
    client: End,
    first: Arc<End>,
    second: End,
    ends: Arc<AtomicBool>,
    router: Option<JoinHandle<()>>,
}

impl Scene {
    /// With a packet that has passed.
    fn new() -> Self {
        let scene = Self::start(true);
        let Self { client, second, .. } = &scene;
        client.send(&udp(client.inner, second.inner, b"first"));
        assert_eq!(second.receive_payload(), b"first");
        scene
    }

    fn start(is_configured: bool) -> Self {
        let options = Options::default();
        let through = Options {
            has_outer: true,
            ..Options::default()
        };
        let client = End::start(1, &through);
        let first = Arc::new(End::start(2, &options));
        let second = End::start(3, &options);
        let mut of_client = PeerUpdate::new(Identity::new(&outer_key()).public_key());
        of_client.allowed_ips = vec![allow(OWN, 32)];
        add(&first, of_client);
        let mut of_client = PeerUpdate::new(client.public_key());
        of_client.allowed_ips = vec![allow(client.inner, 32)];
        add(&second, of_client);
        let mut to_second = PeerUpdate::new(second.public_key());
        to_second.endpoint = Some((SECOND, 51820).into());
        to_second.allowed_ips = vec![allow(second.inner, 32)];
        add(&client, to_second);
        let ends = Arc::new(AtomicBool::new(false));
        let router = {
            let (first, ends) = (Arc::clone(&first), Arc::clone(&ends));
            let port = second.snapshot().listen_port;
            thread::spawn(move || route(&first, port, &ends))
        };
        let scene = Self {
            client,
            first,
            second,
            ends,
            router: Some(router),
        };
        if is_configured {
            scene.configure();
        }
        scene
    }

    fn outer(&self) -> Outer {
        let mut to_first = PeerUpdate::new(self.first.public_key());
        let port = self.first.snapshot().listen_port;
        to_first.endpoint = Some((Ipv4Addr::LOCALHOST, port).into());
        to_first.allowed_ips = vec![allow(Ipv4Addr::UNSPECIFIED, 0)];
        Outer {
            private_key: outer_key(),
            addresses: vec![OWN.into()],
            peers: vec![to_first],
            moved: Vec::new(),
        }
    }

    fn configure(&self) {
        on_runtime(self.client.tunnel.set_outer(self.outer())).expect("the tunnel runs");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.router.take().map(JoinHandle::join));
    }
}

/// Connects the TUN of the first hop with the second one, which is at a port of this host.
fn route(first: &End, port: u16, ends: &AtomicBool) {
    const PAUSE: Duration = Duration::from_millis(1);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let mut client = None;
    let mut buffer = [0; 2048];
    while !ends.load(Ordering::Relaxed) {
        if let Some(raw) = first.kernel.receive(PAUSE) {
            let packet = &raw[VNET..];
            client = Some((packet[12..16].to_vec(), packet[20..22].to_vec()));
            // Of one datagram, or of several that the writer has joined.
            let segment = usize::from(u16::from_le_bytes([raw[4], raw[5]]));
            let payload = &packet[28..];
            for datagram in payload.chunks(if segment == 0 { payload.len() } else { segment }) {
                let sent = socket.send_to(datagram, (Ipv4Addr::LOCALHOST, port));
                sent.expect("the second hop listens");
            }
            first.kernel.recycle(raw);
        }
        while let Ok(length) = socket.recv(&mut buffer) {
            let Some((_, port)) = &client else { continue };
            let mut packet = udp(SECOND, OWN, &buffer[..length]);
            packet[20..22].copy_from_slice(&51820u16.to_be_bytes());
            packet[22..24].copy_from_slice(port);
            first.send(&packet);
        }
    }
}

fn outer_key() -> PrivateKey {
    PrivateKey([9; 32])
}

/// Drops of the outer tunnel, which are not counted as those of the inner one.
fn drops(end: &End, reason: DropReason) -> u64 {
    let snapshot = end.snapshot();
    assert_eq!(snapshot.counters.drops.of(reason), 0, "{reason:?}");
    snapshot.outer.map_or(0, |it| it.counters.drops.of(reason))
}

fn add(end: &End, peer: PeerUpdate) {
    let update = DeviceUpdate {
        peers: vec![peer],
        ..DeviceUpdate::default()
    };
    end.tunnel.apply(update).expect("a peer");
}

fn allow(address: Ipv4Addr, length: u8) -> AllowedIpUpdate {
    AllowedIpUpdate {
        network: Prefix::network_of(IpAddr::V4(address), length).expect("a prefix"),
        remove: false,
    }
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let waited = async { tokio::time::timeout(PATIENCE, future).await };
    let outcome = runtime.expect("a runtime").block_on(waited);
    outcome.expect("in time")
}
