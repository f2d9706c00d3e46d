//! Tests that take minutes: session renewal and silence.

mod rosenpass;

use std::{
    fmt, fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use convoy_lab::{
    Namespace, Pid, eventually,
    wireguard::{End, Tunnel, TunnelOptions},
};

use crate::{
    pairing::{Pairing, Program},
    scene::{DEADLINE, Scene, lab_with, output_of, wg_dump},
    traffic::{SetOnDrop, echo_until, ping},
};

/// Rekey-After-Time (the paper, section 6.1) plus a margin for a program that polls rarely.
pub(crate) const REKEY_DEADLINE: Duration = Duration::from_secs(120 + 30);
const PORT: u16 = 7_001;
/// How long rosenpass keeps a key, and how much later its responder sets the next one, at most.
const KEY_LIFETIME: Duration = Duration::from_secs(120);
const KEY_OFFSET: Duration = Duration::from_millis(100);

#[test]
#[ignore = "make interop"]
fn sessions_are_renewed_after_two_minutes_without_loss() {
    let programs: Vec<_> = Pairing::ALL
        .iter()
        .flat_map(|p| <[_; 2]>::from(p.ends()))
        .collect();
    let Some((_turn, lab)) = lab_with(&programs, &["wg", "ping"]) else {
        return;
    };
    thread::scope(|scope| {
        for pairing in Pairing::ALL {
            let (left, right) = pairing.ends();
            let (left, right) = (left.implementation(), right.implementation());
            let tunnel = Tunnel::new(&lab, &left, &right, &TunnelOptions::default()).unwrap();
            scope.spawn(move || session_is_renewed(pairing, &tunnel));
        }
    });
}

/// Changes the keys as rosenpass 0.2 does: the initiator sets a key when it has a response, the responder when the
/// confirmation arrives. The responder begins the next exchange.
#[test]
#[ignore = "make interop"]
fn a_preshared_key_every_two_minutes_loses_nothing() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    ping(left, right.inner_v4());
    let handshake = || handshake_time(Program::Convoy, left);
    let first = handshake();
    let ends = [&left.namespace, &right.namespace];
    while_exchanging("preshared keys", ends, right.inner_v4(), || {
        for (key, [initiator, responder]) in [(1, [left, right]), (2, [right, left])] {
            set_preshared_key(initiator, responder, key);
            thread::sleep(KEY_OFFSET);
            set_preshared_key(responder, initiator, key);
            thread::sleep(KEY_LIFETIME);
        }
        // Continue into the session of the second key.
        thread::sleep(Duration::from_secs(15));
    });
    assert!(handshake() > first + KEY_LIFETIME + KEY_LIFETIME / 2);
}

fn set_preshared_key(end: &End, peer: &End, key: u8) {
    let file = end.namespace.run_directory().join("preshared");
    fs::write(file, BASE64_STANDARD.encode([key; 32])).unwrap();
    let peer = peer.keys.public_base64();
    let set = [
        "set",
        "wg0",
        "peer",
        &peer,
        "preshared-key",
        "/run/preshared",
    ];
    output_of(&end.namespace, "wg", &set);
}

/// A tunnel without traffic and persistent keepalives has nothing to do.
#[test]
#[ignore = "make interop"]
fn idle_daemons_sleep() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let ends = [&scene.left, &scene.right];
    for end in ends {
        stay_silent(end);
    }
    ping(ends[0], ends[1].inner_v4());
    for end in ends {
        assert!(eventually(3 * DEADLINE, || is_silent(end).then_some(())).is_some());
    }
    let before = ends.map(|end| context_switches(end.daemon.pid()));
    thread::sleep(Duration::from_secs(60));
    for (end, before) in ends.into_iter().zip(before) {
        let switches = context_switches(end.daemon.pid()) - before;
        assert!(
            switches <= 3,
            "{switches} context switches in an idle minute"
        );
    }
}

/// Exchanges echoes all the while, none of which may be lost.
fn session_is_renewed(pairing: Pairing, tunnel: &Tunnel) {
    let (left, right) = (&tunnel.left, &tunnel.right);
    ping(left, right.inner_v4());
    let programs = pairing.ends();
    let handshakes = || {
        [
            handshake_time(programs.0, left),
            handshake_time(programs.1, right),
        ]
    };
    let first = handshakes();
    // A program that reports an age in whole seconds is not exact.
    let long_after = |i: usize, now: SystemTime| now > first[i] + Duration::from_secs(60);
    let renewed = || {
        handshakes()
            .into_iter()
            .enumerate()
            .all(|(i, now)| long_after(i, now))
    };

    let ends = [&left.namespace, &right.namespace];
    while_exchanging(pairing, ends, right.inner_v4(), || {
        let moved = eventually(REKEY_DEADLINE, || {
            thread::sleep(Duration::from_secs(1));
            renewed().then_some(())
        });
        assert!(
            moved.is_some(),
            "{pairing:?}: no new handshake after {first:?}: {:?}",
            handshakes()
        );
        // Continue into the new session.
        thread::sleep(Duration::from_secs(5));
    });
}

/// Exchanges echoes between two namespaces, the second with the address `ip`, while `act` runs; fails the test if
/// one is lost.
pub(crate) fn while_exchanging(
    label: impl fmt::Debug + Send,
    [from, to]: [&Namespace; 2],
    ip: IpAddr,
    act: impl FnOnce(),
) {
    let (is_enough, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let address = SocketAddr::new(ip, PORT);
    let echo = to.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    let bind = || UdpSocket::bind("0.0.0.0:0");
    let socket = from.run(bind).unwrap().unwrap();
    socket.connect(address).unwrap();
    thread::scope(|scope| {
        // The last burst needs its echoes.
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| echo_until(&echo, &is_over));
        let exchange = {
            let _enough = SetOnDrop(&is_enough);
            let exchange = scope.spawn(|| exchange_until(label, &socket, &is_enough));
            act();
            exchange
        };
        exchange.join().unwrap();
    });
}

/// Sends bursts of datagrams; each burst must come back whole before the next.
fn exchange_until(label: impl fmt::Debug, socket: &UdpSocket, done: &AtomicBool) {
    const BURST: u64 = 8;
    let begin = Instant::now();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut next = 0_u64;
    while !done.load(Ordering::Relaxed) {
        let burst = next..next + BURST;
        for number in burst.clone() {
            socket.send(&number.to_be_bytes()).unwrap();
        }
        let mut missing: Vec<_> = burst.collect();
        while !missing.is_empty() {
            let mut number = [0; 8];
            let heard = socket.recv(&mut number);
            let at = begin.elapsed();
            assert!(heard.is_ok(), "{label:?}: lost {missing:?} after {at:?}");
            let number = u64::from_be_bytes(number);
            let position = missing.iter().position(|&n| n == number);
            missing.remove(position.unwrap_or_else(|| panic!("{label:?}: {number} came twice")));
        }
        next += BURST;
        thread::sleep(Duration::from_millis(10));
    }
}

fn handshake_time(program: Program, end: &End) -> SystemTime {
    program.handshake_time(&wg_dump(end, 1)[4])
}

/// Stops the kernel from sending anything on its own.
fn stay_silent(end: &End) {
    for interface in [end.daemon.interface(), "veth0"] {
        let setting = format!("/proc/sys/net/ipv6/conf/{interface}/router_solicitations");
        // /proc/sys/net shows each thread the settings of its own network namespace.
        end.namespace
            .run(|| fs::write(setting, "0"))
            .unwrap()
            .unwrap();
    }
}

/// Returns whether nothing goes in or out for longer than any timer of a live session (Keepalive-Timeout
/// plus Rekey-Timeout, 15 seconds).
fn is_silent(end: &End) -> bool {
    let traffic = || {
        let link = end.namespace.link();
        ["veth0", end.daemon.interface()].map(|name| {
            let counts = link.statistics(name).unwrap();
            [counts.recv_packets, counts.sent_packets, counts.sent_drop]
        })
    };
    let before = traffic();
    thread::sleep(Duration::from_secs(16));
    traffic() == before
}

/// Context switches of all threads, voluntary or not.
fn context_switches(process: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let statuses = threads.map(|t| fs::read_to_string(t.unwrap().path().join("status")).unwrap());
    let count = |status: String| {
        let lines = status
            .lines()
            .filter(|line| line.contains("ctxt_switches:"));
        let counts = lines.map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap());
        counts.sum::<u64>()
    };
    statuses.map(count).sum()
}
