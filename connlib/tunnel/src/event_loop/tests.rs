use std::{net::UdpSocket, sync::Arc, time::Duration};

use convoy_gso::{
    BoundSockets, Destination, Flushed, GsoQueue, SendDatagrams, SocketOptions, udp::OwnPrivileges,
};
use convoy_proto::{
    ControlDatagram, Planner,
    config::{DeviceUpdate, PeerUpdate, PrivateKey, PublicKey},
    counters::DropReason,
    noise::Identity,
};
use convoy_tun::{Coalesce, Offload, memory, spawn_reader, spawn_writer};
use tokio::sync::{mpsc, watch};

use super::{lane::Sending, *};
use crate::command::{Command, Signals};

mod handshakes;

/// An IPv4 packet whose destination belongs to no peer.
const PACKET: [u8; 20] = [
    0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
];

#[test]
fn a_batch_that_was_left_when_the_socket_was_full_goes_on_when_it_is_not() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        while event_loop.tick() {}
        // A tick leaves this state if its budget is spent and the flush then finds the socket full.
        kernel.send(&[&[0; 10][..], &PACKET].concat());
        event_loop.outbound.reader.ready().await;
        let left = event_loop.outbound.reader.try_recv().expect("a batch");
        event_loop.outbound.batch = Some(left);
        event_loop.outbound.lanes[0].sending = Sending::Full;
        for _ in 0..2 {
            if !event_loop.tick() {
                event_loop.wait().await;
            }
        }
        assert_eq!(handled(&mut event_loop), 1);
    });
}

#[test]
fn a_control_datagram_held_back_by_a_socket_that_is_open_again_is_sent() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        while event_loop.tick() {}
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        // A full socket refused the control datagram, and then took the whole queue.
        event_loop.outbound.lanes[0].control = Some(ControlDatagram {
            destination: Destination {
                to: receiver.local_addr().unwrap(),
                source: None,
                ecn: 0,
            },
            datagram: vec![1; 10].into(),
            is_cookie: false,
        });
        assert!(event_loop.tick());
        assert!(!event_loop.outbound.is_stopped());
        assert_eq!(receiver.recv(&mut [0; 20]).unwrap(), 10);
    });
}

/// The only peer has moved to the other address family, and packets to its former address do not leave.
#[test]
fn a_full_socket_that_no_peer_uses_stops_the_intake_for_a_second_at_most() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let mut peer = PeerUpdate::new(Identity::new(&PrivateKey([2; 32])).public_key());
        peer.endpoint = Some("[2001:db8::1]:7".parse().unwrap());
        let update = DeviceUpdate {
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        let EventLoop { node, outbound, .. } = &mut event_loop;
        let now = clock::now();
        node.apply(Planner::default().plan(update), now);
        (outbound.lanes[0].sending, outbound.lanes[0].stopped_at) = (Sending::Full, Some(now));
        outbound.lose_patience(node, now);
        assert!(outbound.is_stopped());
        let end = outbound.next_patience_end(node, now).expect("an end");
        assert!(end <= now + Duration::from_secs(1));
        outbound.lose_patience(node, end);
        assert!(!outbound.is_stopped());
    });
}

#[test]
fn a_packet_that_waits_for_the_link_does_not_keep_the_loop_awake() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        event_loop.node.set_link(false, clock::now());
        kernel.send(&[&[0; 10][..], &PACKET].concat());
        let mut waits = 0;
        while waits < 100 {
            event_loop.tick();
            let wait = tokio::time::timeout(Duration::from_millis(50), event_loop.wait());
            if wait.await.is_err() {
                break;
            }
            waits += 1;
        }
        assert!(waits < 100, "the loop spins");
    });
}

#[test]
fn packets_ahead_of_the_first_configuration_wait_for_it() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        event_loop.awaits_configuration = true;
        kernel.send(&[&[0; 10][..], &PACKET].concat());
        while event_loop.outbound.batch.is_none() {
            event_loop.outbound.reader.ready().await;
            event_loop.tick();
        }
        assert_eq!(handled(&mut event_loop), 0);
        let plan = Box::new(Planner::default().plan(DeviceUpdate::default()));
        let (done, _applied) = std::sync::mpsc::sync_channel(1);
        let apply = Command::Apply {
            plan,
            port: 0,
            done,
        };
        let mut task = event_loop.begin(apply, clock::now());
        while let Some(rest) = task {
            task = event_loop.go_on(rest, clock::now());
        }
        event_loop.tick();
        assert_eq!(handled(&mut event_loop), 1);
    });
}

/// On a busy machine, the thread may lose its processor for longer than commands may take.
#[test]
fn a_command_goes_on_in_each_tick_although_the_turn_is_over_before_its_first_slice() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let peer = |number: u16| {
            let mut key = [7; 32];
            key[..2].copy_from_slice(&number.to_le_bytes());
            PeerUpdate::new(PublicKey(key))
        };
        let update = DeviceUpdate {
            peers: (1..=1_000).map(peer).collect(),
            ..DeviceUpdate::default()
        };
        let plan = Box::new(Planner::default().plan(update));
        let (done, applied) = std::sync::mpsc::sync_channel(1);
        let port = 0;
        let apply = Command::Apply { plan, port, done };
        event_loop.task = event_loop.begin(apply, clock::now());
        let over = Turn::begin(Duration::ZERO);
        while applied.try_recv().is_err() {
            assert!(event_loop.run_commands(&over, clock::now()));
        }
        assert!(!event_loop.run_commands(&over, clock::now()));
    });
}

#[test]
fn a_deleted_interface_ends_the_loop_while_the_link_is_down() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        event_loop.node.set_link(false, clock::now());
        kernel.delete();
        assert_eq!(event_loop.run().await, Exit::InterfaceDeleted);
    });
}

#[test]
fn packets_that_flow_are_read_and_written_by_their_threads() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        while event_loop.tick() {}
        for _ in 0..20 {
            (0..20).for_each(|_| kernel.send(&[&[0; 10][..], &PACKET].concat()));
            let expected = handled(&mut event_loop) + 20;
            while handled(&mut event_loop) < expected {
                event_loop.wait().await;
                event_loop.tick();
            }
        }
        // After a pause, a burst may begin as sparse traffic: with 4 packets at most.
        assert!(event_loop.metrics.sparse_outbound <= 20 * 4);
        let written = std::iter::from_fn(|| kernel.receive(Duration::from_millis(100)));
        assert!(written.count() > 0);
    });
}

#[test]
fn an_icmp_error_is_delivered_or_counted_when_the_writer_is_full() {
    const PACKETS: u64 = 12;
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        while event_loop.tick() {}
        kernel.hold_writes(true);
        for nth in 1..=PACKETS {
            kernel.send(&[&[0; 10][..], &PACKET].concat());
            while handled(&mut event_loop) < nth {
                event_loop.wait().await;
                event_loop.tick();
            }
        }
        let drops = &event_loop.node.counters().drops;
        let lost = drops.of(DropReason::InboundReplyLost);
        // Each reply takes a batch of its own, and there are only a few.
        assert!(0 < lost && lost < PACKETS, "{lost}");
        kernel.hold_writes(false);
        for _ in lost..PACKETS {
            let reply = kernel.receive(Duration::from_secs(10)).expect("a reply");
            assert_eq!(reply[10 + 9], 1, "ICMP");
        }
        assert!(kernel.receive(Duration::ZERO).is_none());
    });
}

#[test]
fn a_changed_route_brings_segmentation_back_to_those_who_refused_it() {
    on_runtime(async {
        let (mut event_loop, _kernel, handle) = event_loop();
        let mut queue = GsoQueue::default();
        let to = Destination {
            to: ([192, 0, 2, 1], 1).into(),
            source: None,
            ecn: 0,
        };
        (0..2).for_each(|_| queue.append(&to, &[0; 100]).unwrap());
        let flusher = &mut event_loop.outbound.flusher;
        let flushed = flusher.flush(&mut queue, &mut Refusing, clock::now());
        assert_eq!((flushed, flusher.refusing()), (Flushed::Done, 1));
        handle.send_modify(|signals| signals.routes += 1);
        event_loop.tick();
        assert_eq!(event_loop.outbound.flusher.refusing(), 0);
    });
}

/// Refuses batches; takes one datagram at a time.
struct Refusing;

impl SendDatagrams for Refusing {
    fn send(&mut self, _: &Destination, _: &[u8], segment_len: Option<usize>) -> io::Result<()> {
        match segment_len {
            Some(_) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
            None => Ok(()),
        }
    }

    fn forget_learnt_mtu(&mut self, _: std::net::SocketAddr) {}

    fn recover(&mut self) {}
}

/// A GRO train is received whole. Each handshake message in it may be expensive, while garbage is cheap.
#[test]
fn a_tick_works_off_a_whole_train_of_rubbish_but_not_of_handshake_messages() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        send_train(&event_loop, &[7; 148]);
        until_ticked(&mut event_loop).await;
        assert_eq!(
            dropped(&mut event_loop, DropReason::InboundNotWireGuard),
            64
        );

        let initiation = initiation_to(&mut event_loop);
        send_train(&event_loop, &initiation);
        until_ticked(&mut event_loop).await;
        let handled = |event_loop: &mut EventLoop| {
            let reasons = [DropReason::InboundTooSoon, DropReason::InboundBadHandshake];
            reasons
                .map(|reason| dropped(event_loop, reason))
                .iter()
                .sum::<u64>()
        };
        // The first one is answered, which may use up the tick's time.
        let first = handled(&mut event_loop);
        assert!(first < 63, "{first} in the first tick");
        while event_loop.tick() {}
        assert_eq!(handled(&mut event_loop), 63);
    });
}

/// A cheap answer may take as long to send as to make.
#[test]
fn a_tick_handles_few_handshake_messages_even_if_each_is_cheap() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let mut initiation = [7; 148];
        initiation[..4].copy_from_slice(&[1, 0, 0, 0]);
        (0..3).for_each(|_| send_train(&event_loop, &initiation));
        let mut handled = 0;
        while handled < 3 * 64 {
            until_ticked(&mut event_loop).await;
            let before = handled;
            handled = dropped(&mut event_loop, DropReason::InboundNoKey);
            assert!(handled - before <= 32, "{before}, then {handled}");
        }
    });
}

/// While intake takes its time, receiving gets as much, however little one call brings.
#[test]
fn a_saturating_upload_leaves_receiving_its_share_of_a_tick() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = ("127.0.0.1", event_loop.port);
        let mut most = 0;
        for _ in 0..20 {
            (0..100).for_each(|_| assert_eq!(sender.send_to(&[7], to).unwrap(), 1));
            event_loop.wait().await;
            let before = dropped(&mut event_loop, DropReason::InboundNotWireGuard);
            event_loop.outbound.took = Duration::from_secs(1);
            event_loop.tick();
            let after = dropped(&mut event_loop, DropReason::InboundNotWireGuard);
            most = most.max(after - before);
            while event_loop.tick() {}
        }
        assert_eq!(most, 100, "in one tick; one call takes 32");
    });
}

/// An initiation by a peer that the loop's node knows from now on.
fn initiation_to(event_loop: &mut EventLoop) -> [u8; 148] {
    let now = clock::now();
    let keys = [1, 2].map(|byte| PrivateKey([byte; 32]));
    let peers = keys
        .each_ref()
        .map(|key| PeerUpdate::new(Identity::new(key).public_key()));
    let [own, key] = keys;
    let [mut to_loop, from_loop] = peers;
    let update = |private_key, peer| DeviceUpdate {
        private_key: Some(Some(private_key)),
        peers: vec![peer],
        ..DeviceUpdate::default()
    };
    let plan = Planner::default().plan(update(own, from_loop));
    event_loop.node.apply(plan, now);
    to_loop.endpoint = Some(([127, 0, 0, 1], event_loop.port).into());
    to_loop.persistent_keepalive = Some(25);
    let mut peer = Node::default();
    peer.apply(Planner::default().plan(update(key, to_loop)), now);
    assert!(!peer.handle_timeout(now));
    let initiation = peer.poll_control(true).unwrap().datagram;
    initiation[..].try_into().unwrap()
}

async fn until_ticked(event_loop: &mut EventLoop) {
    while !event_loop.tick() {
        event_loop.wait().await;
    }
}

/// Sends 64 copies of `message` to the loop in one GSO batch.
fn send_train(event_loop: &EventLoop, message: &[u8; 148]) {
    let bound = BoundSockets::open(SocketOptions::default()).unwrap();
    let mut sender = UdpSockets::register(bound).unwrap();
    assert!(sender.segmentation() && event_loop.sockets.receive_offload());
    let to = Destination {
        to: ([127, 0, 0, 1], event_loop.port).into(),
        source: None,
        ecn: 0,
    };
    sender.send(&to, &message.repeat(64), Some(148)).unwrap();
}

fn handled(event_loop: &mut EventLoop) -> u64 {
    dropped(event_loop, DropReason::OutboundNoRoute)
}

fn dropped(event_loop: &mut EventLoop, reason: DropReason) -> u64 {
    event_loop.node.counters().drops.of(reason)
}

/// Keep the last of the three: without it, the loop ends as if every handle were gone.
fn event_loop() -> (EventLoop, memory::Kernel, watch::Sender<Signals>) {
    let offload = Offload {
        vnet_hdr: true,
        tcp: true,
        udp: true,
    };
    let (device, kernel) = memory::pair(offload, 1420).unwrap();
    let bound = BoundSockets::open(SocketOptions {
        receive_offload: true,
        ..SocketOptions::default()
    });
    let bound = bound.unwrap();
    let (_, commands) = mpsc::channel(1);
    let (handle, signals) = watch::channel(Signals::default());
    let parts = Parts {
        reader: spawn_reader(&device, 50).unwrap(),
        writer: spawn_writer(&device, Coalesce::default()).unwrap(),
        port: bound.port(),
        sockets: Some(UdpSockets::register(bound).unwrap()),
        aead: convoy_aead::Aead::auto(),
        clamp_mss: false,
        segmentation: true,
        batch: 50,
        awaits_configuration: false,
        has_outer: false,
        privileged: Arc::new(OwnPrivileges),
        metrics: Metrics::new(offload, true),
        requests: Requests::new(commands, signals),
        handshake_events: mpsc::channel(1).0,
    };
    (EventLoop::new(parts).unwrap(), kernel, handle)
}

fn on_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(Duration::from_secs(10), test)
                .await
                .expect("the loop goes on");
        });
}
