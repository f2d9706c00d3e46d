//! Provokes refusals by the kernel. Each test checks the daemon's reaction, its counters, and that it
//! is as fast as before once the fault is gone. `rust/README.md` lists all faults.
//!
//! `strace` injects errors that a kernel cannot be made to return.

mod device;
mod icmp;
mod injected;
mod queues;
mod route;

use std::{
    fs,
    net::{IpAddr, UdpSocket},
    os::unix::fs::PermissionsExt,
    sync::atomic::AtomicU64,
};

use convoy_lab::{
    Namespace, eventually,
    wireguard::{End, Identity, Implementation},
};

use crate::{
    scene::{DEADLINE, convoy, convoy_program},
    stats::Stats,
    traffic::tcp,
};

/// Bytes over one TCP connection; more would show nothing new.
const BYTES: u64 = 20_000_000;

/// Port for packets that nobody waits for.
const SINK_PORT: u16 = 9;

/// Carries [`BYTES`] over TCP; returns how many sends of `from` had more than one datagram.
fn batches_sent(from: &End, to: &End) -> u64 {
    let batches = || Stats::of(from).at_least(2, "segments_per_send");
    let before = batches();
    carry(from, to);
    batches() - before
}

/// Carries [`BYTES`] over TCP.
fn carry(from: &End, to: &End) {
    let progress = AtomicU64::new(0);
    tcp(&from.namespace, to, to.inner_v4(), BYTES, &progress);
}

/// Sends packets as fast as the kernel accepts them.
fn send_into_the_tunnel(from: &End, to: &End, packets: u64) {
    let socket = udp_socket(from);
    for _ in 0..packets {
        socket
            .send_to(&[7; 1_300], (to.inner_v4(), SINK_PORT))
            .unwrap();
    }
}

fn udp_socket(end: &End) -> UdpSocket {
    let bind = || UdpSocket::bind("0.0.0.0:0");
    end.namespace.run(bind).unwrap().unwrap()
}

/// Waits until the counters of `end` meet the condition that `what` describes.
fn until(end: &End, what: &str, is_met: impl Fn(&Stats) -> bool) {
    let look = || is_met(&Stats::of(end)).then_some(());
    let in_time = eventually(DEADLINE, look).is_some();
    assert!(
        in_time,
        "timed out waiting until {what}; {:?}",
        Stats::of(end)
    );
}

/// Two ends of a tunnel: the left one runs `implementation`, the right one is at `to`.
fn ends(
    left: &Namespace,
    implementation: &Implementation,
    right: &Namespace,
    to: IpAddr,
) -> (End, End) {
    let (own, other) = (Identity::new(1), Identity::new(2));
    let to_right = other.as_peer(Some((to, 51_820).into()));
    let left = End::start(left, implementation, &own, vec![to_right], 1_420).unwrap();
    let to_left = own.as_peer(None);
    let right = End::start(right, &convoy(), &other, vec![to_left], 1_420).unwrap();
    (left, right)
}

/// Convoy started by a shell script that puts `before` in front of the program.
fn convoy_after(namespace: &Namespace, before: &str) -> Implementation {
    let script = namespace.run_directory().join("start");
    let program = convoy_program();
    let text = format!("#!/bin/sh\n{before} {} \"$@\"\n", program.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    Implementation::new("/var/run/start")
}
