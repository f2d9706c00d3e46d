//! The interface is set down and up, renamed, and moved to other network namespaces.
//!
//! ```text
//!  inside                left                       right
//!  ┌──────┐  moved  ┌────┬────────┐           ┌────────┬────┐
//!  │ wg0  │ ◀────── │ wg0│ daemon │           │ daemon │ wg0│
//!  └──────┘         │    │ veth0 ─┼───────────┼─ veth0 │    │
//!                   └────┴────────┘           └────────┴────┘
//! ```

use std::{
    io::{Read, Write},
    net::{Shutdown, UdpSocket},
    os::unix::net::UnixStream,
    process::Stdio,
    sync::atomic::AtomicU64,
    time::Duration,
};

use convoy_lab::{Namespace, eventually, wireguard::End};

use crate::{
    scene::{DEADLINE, Pairing, Scene, convoy_program, lab, output_of, wg_dump},
    stats::Stats,
    traffic::{ping, tcp},
};

/// Index of a peer's sent bytes in `wg show IFACE dump`.
const TX_BYTES: usize = 6;

#[test]
fn a_link_that_is_set_down_frees_its_port_and_comes_up_again() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    ping(left, right.inner_v4());
    for _ in 0..2 {
        left.namespace.link().set_down("wg0").unwrap();
        let bind = || UdpSocket::bind("0.0.0.0:51820").ok();
        let is_free = eventually(DEADLINE, || left.namespace.run(bind).unwrap());
        assert!(is_free.is_some(), "the daemon still has its port");
        drop(is_free);
        left.namespace.link().set_up("wg0").unwrap();
        // A link that goes down keeps its IPv4 addresses, but not its IPv6 addresses.
        ping(left, right.inner_v4());
        ping(right, left.inner_v4());
    }
}

#[test]
fn a_link_that_is_down_sends_no_keepalives() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let tunnel = &mut *scene;
    tunnel.left.config.peers[0].persistent_keepalive = 1;
    tunnel.left.daemon.configure(&tunnel.left.config).unwrap();
    let sent = |scene: &Scene| wg_dump(&scene.left, 1)[TX_BYTES].parse::<u64>().unwrap();
    let sends_within = |time: Duration| {
        let before = sent(&scene);
        eventually(time, || (sent(&scene) > before).then_some(())).is_some()
    };
    assert!(sends_within(DEADLINE));
    scene.left.namespace.link().set_down("wg0").unwrap();
    let three_keepalives = Duration::from_secs(3);
    let fell_silent = eventually(DEADLINE, || (!sends_within(three_keepalives)).then_some(()));
    assert!(fell_silent.is_some());
    scene.left.namespace.link().set_up("wg0").unwrap();
    assert!(sends_within(DEADLINE));
}

/// As in a container that has no other capability.
#[test]
fn cap_net_admin_is_enough_to_follow_the_link() {
    let Some((_turn, lab)) = lab(&["setpriv"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    let mut command = namespace.command("setpriv");
    command.args(["--bounding-set", "-all,+net_admin"]);
    let mut daemon = command
        .arg(convoy_program())
        .args(["-f", "wg0"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let socket = namespace.run_directory().join("wireguard/wg0.sock");
    for is_up in [true, false, true] {
        let state = if is_up {
            "\"link\":\"up\""
        } else {
            "\"link\":\"down\""
        };
        let is_so = || {
            let mut stream = UnixStream::connect(&socket).ok()?;
            stream.write_all(b"get=convoy_stats\n\n").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.contains(state).then_some(())
        };
        let there = || namespace.link().exists("wg0").then_some(());
        eventually(DEADLINE, there).unwrap();
        match is_up {
            true => namespace.link().set_up("wg0").unwrap(),
            false => namespace.link().set_down("wg0").unwrap(),
        }
        let followed = eventually(DEADLINE, is_so);
        if followed.is_none() {
            daemon.kill().unwrap();
        }
        assert!(followed.is_some(), "the daemon does not report {state}");
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn a_renamed_interface_keeps_its_tunnel() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    ping(left, right.inner_v4());
    let ip = |arguments: &[&str]| output_of(&left.namespace, "ip", arguments);
    ip(&["link", "set", "wg0", "down"]);
    ip(&["link", "set", "wg0", "name", "office"]);
    ip(&["link", "set", "office", "up"]);
    ping(left, right.inner_v4());
    ip(&["link", "set", "office", "mtu", "1300"]);
    let mtu_is_known = || (Stats::of(left).number("mtu") == 1300).then_some(());
    assert!(eventually(DEADLINE, mtu_is_known).is_some());
}

#[test]
fn a_tunnel_survives_moving_its_interface_to_another_namespace_and_back() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    let inside = scene.lab().namespace("inside").unwrap();
    let elsewhere = scene.lab().namespace("elsewhere").unwrap();
    ping(left, right.inner_v4());
    let mut before = &left.namespace;
    for after in [&inside, &elsewhere, &inside, &left.namespace] {
        move_to(before, after, "1400");
        ping_from(after, right);
        tcp(
            after,
            right,
            right.inner_v4(),
            10_000_000,
            &AtomicU64::new(0),
        );
        assert_eq!(
            wg_dump(right, 1)[2],
            "10.9.0.1:51820",
            "the sockets must stay"
        );
        before = after;
    }
}

#[test]
fn the_state_and_the_mtu_of_a_moved_interface_are_followed() {
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    let inside = scene.lab().namespace("inside").unwrap();
    move_to(&left.namespace, &inside, "1350");
    let mtu_is_known = || (Stats::of(left).number("mtu") == 1350).then_some(());
    assert!(eventually(DEADLINE, mtu_is_known).is_some());
    ping_from(&inside, right);
    ping(right, left.inner_v4());
    inside.link().set_down("wg0").unwrap();
    let bind = || UdpSocket::bind("0.0.0.0:51820").ok();
    let is_free = eventually(DEADLINE, || left.namespace.run(bind).unwrap());
    assert!(is_free.is_some(), "the daemon still has its port");
    drop(is_free);
    inside.link().set_up("wg0").unwrap();
    ping_from(&inside, right);
}

#[test]
fn a_namespace_that_ends_takes_the_interface_and_the_daemon_with_it() {
    let Some(mut scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let inside = scene.lab().namespace("inside").unwrap();
    move_to(&scene.left.namespace, &inside, "1420");
    ping_from(&inside, &scene.right);
    nix::sys::signal::kill(inside.pid(), nix::sys::signal::Signal::SIGKILL).unwrap();
    drop(inside);
    let status = scene.left.daemon.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!scene.left.daemon.socket().exists());
}

/// Moves the interface step by step, as a user would; a move removes its addresses.
fn move_to(from: &Namespace, to: &Namespace, mtu: &str) {
    let pid = to.pid().to_string();
    output_of(from, "ip", &["link", "set", "wg0", "netns", &pid]);
    for step in [
        &["address", "add", "10.8.0.1/24", "dev", "wg0"][..],
        &["link", "set", "wg0", "mtu", mtu, "up"],
    ] {
        output_of(to, "ip", step);
    }
}

/// Waits for an answer: the daemon may hear after the first packet that the link is up again.
fn ping_from(namespace: &Namespace, to: &End) {
    let to = to.inner_v4().to_string();
    let answered = eventually(DEADLINE, || {
        let ping = namespace
            .command("ping")
            .args(["-n", "-c1", "-W1", &to])
            .output();
        ping.unwrap().status.success().then_some(())
    });
    assert!(answered.is_some(), "{to} does not answer");
}
