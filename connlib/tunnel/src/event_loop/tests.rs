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

fn handled(event_loop: &mut EventLoop) -> u64 {
    event_loop
        .node
        .counters()
        .drops
        .of(DropReason::OutboundNoRoute)
}

/// The last of the three keeps the loop from taking its handles for gone.
fn event_loop() -> (EventLoop, memory::Kernel, watch::Sender<Signals>) {
    let offload = Offload {
        vnet_hdr: true,
        tcp: true,
        udp: true,
    };
    let (device, kernel) = memory::pair(offload, 1420).unwrap();
    let bound = convoy_gso::BoundSockets::open(convoy_gso::SocketOptions::default()).unwrap();
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
