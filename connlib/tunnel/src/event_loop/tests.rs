use convoy_gso::{BoundSockets, Destination, SendDatagrams, SocketOptions};
use convoy_tun::{Coalesce, Offload, memory, spawn_reader, spawn_writer};

use convoy_proto::counters::DropReason;

use super::*;

/// An IPv4 packet that no peer is there for.
const PACKET: [u8; 20] = [
    0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
];

#[test]
fn a_batch_that_was_left_when_the_socket_was_full_goes_on_when_it_is_not() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        while event_loop.tick() {}
        // What a tick leaves when its budget was spent and the flush then met a full socket.
        kernel.send(&[&[0; 10][..], &PACKET].concat());
        let left = event_loop.reader.recv().await.expect("a batch");
        event_loop.outbound = Some(left);
        event_loop.blocked = Some(Family::V4);
        for _ in 0..2 {
            if !event_loop.tick() {
                event_loop.wait().await;
            }
        }
        assert_eq!(handled(&mut event_loop), 1);
    });
}

#[test]
fn a_loop_that_has_time_reads_bursts_without_the_readers_thread() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        // Hours in which its thread had next to nothing of a processor.
        event_loop.load = Load::new(Duration::ZERO, Duration::ZERO);
        while event_loop.tick() {}
        for burst in [1, 20, 20, 20] {
            (0..burst).for_each(|_| kernel.send(&[&[0; 10][..], &PACKET].concat()));
            let mut left = burst;
            while left > 0 {
                let batch = event_loop.reader.recv().await.expect("a batch");
                left -= batch.packets();
                // The first batch is the thread's, with which it hands the turn over.
                assert!(
                    burst == 1 || batch.calls().waits == 0,
                    "the thread has read"
                );
            }
        }
    });
}

#[test]
fn a_loop_that_has_time_writes_bursts_without_the_writers_thread() {
    on_runtime(async {
        let (mut event_loop, kernel, _handle) = event_loop();
        // Hours in which its thread had next to nothing of a processor.
        event_loop.load = Load::new(Duration::ZERO, Duration::ZERO);
        while event_loop.tick() {}
        let mut batch = event_loop.writer.take(Duration::ZERO).expect("a batch");
        for _ in 0..20 {
            batch.slot(PACKET.len()).unwrap().copy_from_slice(&PACKET);
            batch.commit(PACKET.len());
        }
        event_loop.inbound = Some(batch);
        event_loop.tick();
        assert!(event_loop.writer.is_idle());
        let written = std::iter::from_fn(|| kernel.receive(Duration::ZERO));
        assert_eq!(written.count(), 20);
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
        // Each reply took a batch of its own, of the few that there are.
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
        let flusher = &mut event_loop.flusher;
        let flushed = flusher.flush(&mut queue, &mut Refusing, clock::now());
        assert_eq!((flushed, flusher.refusing()), (Flushed::Done, 1));
        handle.send_modify(|signals| signals.routes += 1);
        event_loop.tick();
        assert_eq!(event_loop.flusher.refusing(), 0);
    });
}

/// Takes one datagram at a time.
struct Refusing;

impl SendDatagrams for Refusing {
    fn send(&mut self, _: &Destination, _: &[u8], segment_len: Option<usize>) -> io::Result<()> {
        match segment_len {
            Some(_) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
            None => Ok(()),
        }
    }

    fn recover(&mut self) {}
}

/// A train is received whole; a handshake message of it may cost much, and rubbish costs nothing.
#[test]
fn a_tick_works_off_a_whole_train_of_rubbish_but_not_of_handshake_messages() {
    on_runtime(async {
        let (mut event_loop, _kernel, _handle) = event_loop();
        let mut initiation = [0; 148];
        initiation[0] = 1;
        for (message, reason, first_tick) in [
            (&[7; 148], DropReason::InboundNotWireGuard, 64),
            (&initiation, DropReason::InboundNoKey, 32),
        ] {
            send_train(&event_loop, message);
            while !event_loop.tick() {
                event_loop.wait().await;
            }
            assert_eq!(dropped(&mut event_loop, reason), first_tick, "{reason:?}");
            while event_loop.tick() {}
            assert_eq!(dropped(&mut event_loop, reason), 64, "{reason:?}");
        }
    });
}

/// Sends 64 copies of `message` to the loop in one send.
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

/// The last of the three keeps the loop from taking its handles for gone.
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
        segmentation: true,
        batch: 50,
        metrics: Metrics::new(offload, true),
        commands,
        signals,
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
