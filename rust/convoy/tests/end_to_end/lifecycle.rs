//! How the daemon starts and ends.

use std::{
    io::{Read, Write},
    net::UdpSocket,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use convoy_lab::{
    Pid, eventually,
    wireguard::{Daemon, End},
};
use nix::sys::signal::{Signal, kill};

use crate::{
    scene::{DEADLINE, Pairing, Scene, convoy, convoy_program, lab, output_of, wireguard_go},
    traffic::{answers, ping},
};

#[test]
fn sigterm_ends_the_daemon_and_leaves_nothing_behind() {
    ends_cleanly(|end| end.daemon.signal(Signal::SIGTERM).unwrap());
}

#[test]
fn sigint_ends_the_daemon_and_leaves_nothing_behind() {
    ends_cleanly(|end| end.daemon.signal(Signal::SIGINT).unwrap());
}

#[test]
fn removing_the_interface_ends_the_daemon_and_leaves_nothing_behind() {
    ends_cleanly(|end| end.namespace.link().remove(end.daemon.interface()).unwrap());
}

#[test]
fn removing_the_socket_ends_the_daemon_and_leaves_nothing_behind() {
    ends_cleanly(|end| std::fs::remove_file(end.daemon.socket()).unwrap());
}

#[test]
fn sigterm_ends_the_daemon_under_load() {
    ends_cleanly_under_load(|end| end.daemon.signal(Signal::SIGTERM).unwrap());
}

#[test]
fn sigint_ends_the_daemon_under_load() {
    ends_cleanly_under_load(|end| end.daemon.signal(Signal::SIGINT).unwrap());
}

#[test]
fn removing_the_interface_ends_the_daemon_under_load() {
    ends_cleanly_under_load(|end| end.namespace.link().remove(end.daemon.interface()).unwrap());
}

#[test]
fn removing_the_socket_ends_the_daemon_under_load() {
    ends_cleanly_under_load(|end| std::fs::remove_file(end.daemon.socket()).unwrap());
}

#[test]
fn a_killed_daemon_can_be_started_again() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToWireguardGo) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    // The socket of the killed daemon is still there.
    scene.left.replace_daemon(&convoy()).unwrap();
    ping(&scene.left, scene.right.inner_v4());
    ping(&scene.right, scene.left.inner_v6());
}

#[test]
fn a_signal_while_the_daemon_starts_leaves_nothing_behind() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let socket = namespace.run_directory().join("wireguard/wg0.sock");
    for signal in [Signal::SIGTERM, Signal::SIGINT].repeat(5) {
        let mut command = namespace.command(convoy_program());
        let mut daemon = command.args(["-f", "wg0"]).spawn().unwrap();
        let begin = Instant::now();
        // Without a pause: the daemon needs a few milliseconds until it listens for signals.
        while !socket.exists() {
            assert!(begin.elapsed() < DEADLINE);
        }
        kill(Pid::from_raw(daemon.id().cast_signed()), signal).unwrap();
        let status = daemon.wait().unwrap();
        assert!(status.success(), "{signal}: {status}");
        assert!(!socket.exists(), "{signal}");
    }
}

#[test]
fn a_daemon_can_be_started_as_soon_as_the_interface_is_deleted() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let mut former = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    for _ in 0..30 {
        // The answer may come from the previous daemon, before the interface exists.
        let removed = eventually(DEADLINE, || namespace.link().remove("wg0").ok());
        assert!(removed.is_some());
        former = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    }
    assert!(former.ended().is_none());
}

/// The left end receives nothing for 15 seconds (Keepalive-Timeout plus Rekey-Timeout, section 6 of
/// the paper) and starts a new handshake.
#[test]
fn a_peer_that_has_lost_its_sessions_is_reached_again() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToWireguardGo) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    scene.right.replace_daemon(&wireguard_go()).unwrap();
    let answered = eventually(2 * DEADLINE, || {
        answers(&scene.left, scene.right.inner_v4()).then_some(())
    });
    assert!(answered.is_some());
}

#[test]
fn without_f_the_daemon_is_ready_when_the_command_returns() {
    let Some((_turn, lab)) = lab(&["wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    output_of(&namespace, convoy_program(), &["wg0"]);
    assert!(namespace.link().exists("wg0"));
    assert!(output_of(&namespace, "wg", &["show", "wg0"]).contains("interface: wg0"));
    namespace.link().remove("wg0").unwrap();
    let socket = namespace.run_directory().join("wireguard/wg0.sock");
    assert!(eventually(DEADLINE, || (!socket.exists()).then_some(())).is_some());
}

#[test]
fn a_second_daemon_for_the_same_interface_is_refused() {
    let Some((_turn, lab)) = lab(&[]) else { return };
    let namespace = lab.namespace("left").unwrap();
    let first = Daemon::start(&namespace, &convoy(), "wg0").unwrap();
    let second = namespace
        .command(convoy_program())
        .args(["-f", "wg0"])
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(!second.stderr.is_empty() || !second.stdout.is_empty());
    assert!(first.request("get=1\n\n").unwrap().ends_with("errno=0\n\n"));
}

/// With traffic both ways and unfinished requests on the socket.
fn ends_cleanly_under_load(end_it: impl FnOnce(&End)) {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    let mut clients = [&b"set=1\nlisten_po"[..], b"get=1\n\n", b"get"].map(|request| {
        let mut client = UnixStream::connect(scene.left.daemon.socket()).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.write_all(request).unwrap();
        client
    });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (from, to) in [(&scene.left, &scene.right), (&scene.right, &scene.left)] {
            let (namespace, address) = (from.namespace.clone(), (to.inner_v4(), 7_000));
            let bind = || UdpSocket::bind("0.0.0.0:0");
            let socket = namespace.run(bind).unwrap().unwrap();
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Once the interface is gone there is no route.
                    let _ = socket.send_to(&[0; 1_200], address);
                }
            });
        }
        let before = received(&scene.left);
        // The senders use all CPU time there is, so this may take long.
        let flows = eventually(3 * DEADLINE, || {
            (received(&scene.left) > before + 1_000).then_some(())
        });
        end_it(&scene.left);
        let ended = eventually(3 * DEADLINE, || scene.left.daemon.ended());
        is_over.store(true, Ordering::Relaxed);
        assert!(flows.is_some(), "there was no traffic");
        assert!(ended.is_some(), "the daemon is still running");
    });
    is_gone(&mut scene.left);
    for client in &mut clients {
        client.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// Packets that came out of the tunnel.
fn received(end: &End) -> u64 {
    let statistics = end.namespace.link().statistics(end.daemon.interface());
    statistics.unwrap().recv_packets
}

fn ends_cleanly(end_it: impl FnOnce(&End)) {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    end_it(&scene.left);
    is_gone(&mut scene.left);
}

/// Requires exit status 0, and that neither socket nor interface is left.
fn is_gone(end: &mut End) {
    let status = end.daemon.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    let daemon = &end.daemon;
    assert!(!daemon.socket().exists(), "the socket is still there");
    assert!(!end.namespace.link().exists(daemon.interface()));
}
