//! Configuration and counters, over the UAPI socket and through the programs that use it.

use std::{net::UdpSocket, process::Stdio};

use convoy_lab::eventually;
use convoy_report::Report;

use crate::{
    scene::{DEADLINE, Pairing, Scene, convoy_program, output_of, wg_dump},
    stats::Stats,
    traffic::ping,
};

#[test]
fn rubbish_on_the_socket_leaves_the_daemon_running() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let key = "0".repeat(63);
    let long = "x".repeat(100_000);
    for rubbish in [
        "\n",
        "rubbish\n\n",
        "set=1\nrubbish\n\n",
        "set=1\nlisten_port=-1\n\n",
        "get=2",
    ] {
        // The parser's own tests check the answers.
        let _ = scene.left.daemon.request(rubbish);
    }
    for rubbish in [
        format!("set=1\nprivate_key={key}\n\n"),
        format!("set=1\n{long}=1\n\n"),
    ] {
        let _ = scene.left.daemon.request(&rubbish);
    }
    assert!(scene.left.daemon.ended().is_none());
    ping(&scene.left, scene.right.inner_v4());
}

#[test]
fn a_refused_wg_set_changes_nothing() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let before = scene.left.daemon.request("get=1\n\n").unwrap();
    let key = "00".repeat(32);
    let request = format!("set=1\nlisten_port=7\npublic_key={key}\nallowed_ip=10.0.0.0/99\n\n");
    let answer = scene.left.daemon.request(&request).unwrap();
    assert!(!answer.contains("errno=0\n"), "{answer}");
    assert_eq!(scene.left.daemon.request("get=1\n\n").unwrap(), before);
}

#[test]
fn wg_setconf_and_showconf_agree() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let left = &scene.left;
    let shown = output_of(&left.namespace, "wg", &["showconf", "wg0"]);
    let changed = shown.replace("ListenPort = 51820", "ListenPort = 51821");
    assert_ne!(shown, changed);
    let file = left.namespace.run_directory().join("wg0.conf");
    std::fs::write(&file, &changed).unwrap();
    output_of(&left.namespace, "wg", &["setconf", "wg0", "/run/wg0.conf"]);
    assert_eq!(
        output_of(&left.namespace, "wg", &["showconf", "wg0"]),
        changed
    );
    ping(left, scene.right.inner_v4());
    // The other end has received from the new port.
    assert_eq!(wg_dump(&scene.right, 1)[2], "10.9.0.1:51821");
}

#[test]
fn a_peer_that_wg_removes_is_no_longer_served() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    let key = scene.right.keys.public_base64();
    output_of(
        &scene.left.namespace,
        "wg",
        &["set", "wg0", "peer", &key, "remove"],
    );
    assert_eq!(
        output_of(&scene.left.namespace, "wg", &["show", "wg0", "peers"]),
        ""
    );
    let drops = || Stats::of(&scene.left).dropped("outbound_no_route");
    let before = drops();
    let address = (scene.right.inner_v4(), 7_000);
    let socket = scene
        .left
        .namespace
        .run(|| UdpSocket::bind("0.0.0.0:0"))
        .unwrap()
        .unwrap();
    for _ in 0..50 {
        socket.send_to(b"lost", address).unwrap();
    }
    let dropped = eventually(DEADLINE, || (drops() >= before + 50).then_some(()));
    assert!(dropped.is_some());
}

#[test]
fn stats_show_why_a_packet_was_dropped() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    // The kernel's own multicast has no route either, so the counter may not start at zero.
    let drops = || Stats::of(&scene.left).dropped("outbound_no_route");
    let before = drops();
    let socket = scene
        .left
        .namespace
        .run(|| UdpSocket::bind("0.0.0.0:0"))
        .unwrap()
        .unwrap();
    // In the tunnel's network, but not a peer's address.
    for _ in 0..50 {
        socket.send_to(b"lost", "10.8.0.99:7000").unwrap();
    }
    let counted = eventually(DEADLINE, || (drops() >= before + 50).then_some(()));
    let stats = Stats::of(&scene.left);
    assert!(counted.is_some(), "{stats:?}");
    assert_eq!(stats.handshakes(), 1);
    assert_eq!(stats.event("tun_queue_drops"), 0);
}

#[test]
fn stats_are_text_unless_json_is_requested() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let stats = |arguments: &[&str]| {
        let arguments = [&["stats", "wg0"], arguments].concat();
        output_of(&scene.left.namespace, convoy_program(), &arguments)
    };
    let text = stats(&[]);
    assert!(text.contains("wg0"), "{text}");
    let report: Report = serde_json::from_str(&stats(&["--json"])).unwrap();
    assert_eq!((&*report.interface, report.peers.len()), ("wg0", 1));
    let unknown = scene
        .left
        .namespace
        .command(convoy_program())
        .args(["stats", "wg7"])
        .stderr(Stdio::null())
        .status();
    assert!(!unknown.unwrap().success());
}
