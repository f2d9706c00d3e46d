//! The event loop with its real threads and sockets, without root.

mod common;

use std::{sync::mpsc, time::Duration};

use common::*;
use convoy_proto::{config::DeviceUpdate, counters::DropReason};
use convoy_tunnel::{ApplyError, Exit, Options, Outcome, PeerEvent, Switch, Tunnel};

#[test]
fn packets_arrive_in_order_with_every_combination_of_switches() {
    for gso in [Switch::Auto, Switch::Off] {
        for udp_gro in [Switch::Auto, Switch::Off] {
            for batch in [1, 50] {
                let (a, b) = connected(&Options {
                    gso,
                    udp_gro,
                    batch,
                    ..Options::default()
                });
                for n in 0..500u32 {
                    let len = 4 + (n as usize * 37) % 1300;
                    let mut payload = vec![n as u8; len];
                    payload[..4].copy_from_slice(&n.to_be_bytes());
                    a.send(&udp(a.inner, b.inner, &payload));
                }
                for n in 0..500u32 {
                    let payload = b.receive_payload();
                    assert_eq!(payload[..4], n.to_be_bytes(), "{gso:?} {udp_gro:?} {batch}");
                }
            }
        }
    }
}

#[test]
fn a_super_packet_goes_in_and_super_packets_come_out_with_the_same_bytes() {
    let (a, b) = connected(&Options::default());
    let payload: Vec<u8> = (0..46 * 1380u32).map(|n| (n * 7 / 5) as u8).collect();
    a.kernel
        .send(&tcp_super_packet(a.inner, b.inner, 1380, &payload));
    let mut received: Vec<u8> = Vec::new();
    let mut writes = 0;
    while received.len() < payload.len() {
        let raw = b.kernel.receive(PATIENCE).expect("the rest arrives");
        received.extend(&raw[VNET + 40..]);
        writes += 1;
    }
    assert_eq!(received, payload);
    assert!(writes < 10, "{writes} writes for 46 segments");
    let sent = a.snapshot().counters;
    assert_eq!(sent.packets_per_read.counts[46], 1);
    assert!(sent.segments_per_send.counts[45] >= 1);
}

#[test]
fn packets_with_a_wrong_checksum_arrive_by_themselves_and_are_counted() {
    const PACKETS: usize = 10;
    let (a, b) = connected(&Options::default());
    let mut packet = tcp_super_packet(a.inner, b.inner, 1380, &[7; PACKETS * 1380]);
    // The sum that the tunnel completes.
    packet[VNET + 20 + 16] ^= 1;
    a.kernel.send(&packet);
    for _ in 0..PACKETS {
        let raw = b.kernel.receive(PATIENCE).expect("a packet arrives");
        assert_eq!(raw.len(), VNET + 40 + 1380);
    }
    eventually(|| {
        let events = b.snapshot().counters.events;
        events
            .iter()
            .any(|(name, count)| *name == "tun_bad_checksums" && *count > 0)
    });
}

#[test]
fn a_writer_that_is_held_up_loses_nothing() {
    let (a, b) = connected(&Options::default());
    b.kernel.hold_writes(true);
    const PACKETS: u32 = 2000;
    for n in 0..PACKETS {
        a.send(&udp(a.inner, b.inner, &n.to_be_bytes()));
    }
    eventually(|| a.snapshot().peers[0].tx_packets > u64::from(PACKETS));
    b.kernel.hold_writes(false);
    for n in 0..PACKETS {
        assert_eq!(b.receive_payload(), n.to_be_bytes());
    }
}

/// The kernel leaves the checksum of its own segments to the device.
#[test]
fn a_syn_whose_checksum_is_unfinished_arrives_clamped_and_right() {
    let (a, b) = connected(&Options {
        clamp_mss: true,
        ..Options::default()
    });
    a.tunnel.set_mtu(1280);
    eventually(|| a.snapshot().mtu == 1280);
    let state = a.snapshot().counters.state;
    assert!(state.contains(&("clamp_mss", "on".to_owned())));
    a.kernel.send(&tcp_syn(a.inner, b.inner, 1460));
    let raw = b.kernel.receive(PATIENCE).expect("a packet arrives");
    let packet = &raw[VNET..];
    assert_eq!(packet[40..], [2, 4, 0x04, 0xd8], "1,240 bytes");
    assert!(is_tcp_checksum_right(packet));
}

#[test]
fn jumbo_packets_pass_and_an_mtu_is_taken_over_while_running() {
    let (a, b) = connected(&Options::default());
    a.tunnel.set_mtu(65_455);
    eventually(|| a.snapshot().mtu == 65_455);
    for len in [60_000, 65_455 - 28] {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        a.send(&udp(a.inner, b.inner, &payload));
        assert_eq!(b.receive_payload(), payload);
    }
}

#[test]
fn a_taken_port_is_refused_and_nothing_is_changed() {
    let (a, b) = connected(&Options::default());
    let before = a.snapshot();
    let update = DeviceUpdate {
        listen_port: Some(b.snapshot().listen_port),
        replace_peers: true,
        ..DeviceUpdate::default()
    };
    let refused = a.tunnel.apply(update);
    assert!(matches!(refused, Err(ApplyError::Sockets { .. })));
    let after = a.snapshot();
    assert_eq!(after.listen_port, before.listen_port);
    assert_eq!(after.peers.len(), 1);
}

#[test]
fn a_new_port_keeps_the_session_and_the_peer_follows() {
    let (a, b) = connected(&Options::default());
    let update = DeviceUpdate {
        listen_port: Some(0),
        ..DeviceUpdate::default()
    };
    let before = a.snapshot().listen_port;
    a.tunnel.apply(update).unwrap();
    let after = a.snapshot().listen_port;
    assert_ne!(before, after);
    a.send(&udp(a.inner, b.inner, b"from a new port"));
    assert_eq!(b.receive_payload(), b"from a new port");
    assert_eq!(b.snapshot().peers[0].endpoint.unwrap().port(), after);
    b.send(&udp(b.inner, a.inner, b"to it"));
    assert_eq!(a.receive_payload(), b"to it");
}

#[test]
fn the_handshake_of_a_followed_peer_begins_at_once_and_is_reported() {
    let (a, b) = connected(&Options::default());
    let peer = b.public_key();
    let stranger = a.public_key();
    let event = on_runtime(async {
        a.tunnel.follow(&[stranger, peer]).await.unwrap();
        a.tunnel.handshake_now(&[stranger, peer]).await.unwrap();
        a.tunnel.next_handshake_event().await
    });
    let answered = PeerEvent::handshake(peer, Outcome::Answered);
    assert_eq!(event, answered);
    assert_eq!(a.snapshot().counters.handshakes, 2);
    b.tunnel.stop();
    assert_eq!(exit_of(&b.tunnel), Exit::Stopped);
    let closed = on_runtime(async { b.tunnel.follow(&[peer]).await });
    assert!(closed.is_err());
}

#[test]
fn what_is_dropped_is_counted_by_its_reason() {
    let (a, b) = connected(&Options::default());
    a.send(&udp(a.inner, [10, 9, 9, 9].into(), b"nobody"));
    a.send(&[0x45, 0, 0]);
    a.kernel.send(&[0xff; 30]);
    a.send(&udp(a.inner, b.inner, b"last"));
    b.receive_payload();
    let drops = a.snapshot().counters.drops;
    assert_eq!(drops.of(DropReason::OutboundNoRoute), 1);
    assert_eq!(drops.of(DropReason::OutboundMalformed), 2);
}

#[test]
fn a_deleted_interface_ends_the_tunnel_and_a_stopped_one_says_so() {
    let (a, b) = connected(&Options::default());
    a.kernel.delete();
    assert_eq!(exit_of(&a.tunnel), Exit::InterfaceDeleted);
    assert!(a.tunnel.snapshot().is_err());
    b.tunnel.stop();
    assert_eq!(exit_of(&b.tunnel), Exit::Stopped);
    assert!(matches!(
        b.tunnel.apply(DeviceUpdate::default()),
        Err(ApplyError::Closed)
    ));
}

#[test]
fn an_idle_tunnel_does_not_turn_its_loop() {
    let (a, b) = connected(&Options::default());
    // Wait until it has settled: between two snapshots, only the snapshots themselves cause ticks.
    let settled = |end: &End| {
        let before = end.snapshot().counters.ticks;
        std::thread::sleep(Duration::from_millis(100));
        end.snapshot().counters.ticks - before
    };
    eventually(|| settled(&a) <= 2 && settled(&b) <= 2);
}

fn exit_of(tunnel: &Tunnel) -> Exit {
    let (sender, receiver) = mpsc::channel();
    let tunnel = tunnel.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        let _ = sender.send(runtime.block_on(tunnel.wait()));
    });
    receiver.recv_timeout(PATIENCE).expect("the tunnel ends")
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(async { tokio::time::timeout(PATIENCE, future).await })
        .expect("an event")
}
