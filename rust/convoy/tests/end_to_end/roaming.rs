//! One end roams while TCP runs in both directions; no data is lost.
//!
//! ```text
//!   left: 10.9.0.1 fd09::1 ──────── veth ──────── right: 10.9.0.2 fd09::2
//!         ↓ port
//!         10.9.0.1:51999
//!         ↓ address
//!         10.9.0.7:51999
//!         ↓ IP version
//!         [fd09::1]:51999
//! ```

use std::{
    net::{IpAddr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use convoy_lab::{
    Namespace, eventually,
    wireguard::{End, Underlay},
};

use crate::{
    pairing::Program,
    scene::{DEADLINE, Scene, for_each_pairing, wg_dump},
    traffic::{SetOnDrop, await_progress, ping, tcp, tcp_bytes},
};

const PORT: u16 = 51_999;

for_each_pairing! {
    fn tcp_survives_the_left_end_roaming(pairing: Pairing) {
        let Some(mut scene) = Scene::new(pairing) else { return };
        let (program, other) = pairing.ends();
        let tunnel = &mut *scene;
        for (program, end) in [(program, &mut tunnel.left), (other, &mut tunnel.right)] {
            if let Some(argument) = program.argument_to_roam() {
                end.replace_daemon(&program.implementation().argument(argument)).unwrap();
            }
        }
        let (left, right) = (&scene.left, &scene.right);
        ping(left, right.inner_v4());
        let (done, bytes) = (AtomicBool::new(false), tcp_bytes());
        let (up, down) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let _end = SetOnDrop(&done);
            scope.spawn(|| speak_until(&left.namespace, right.inner_v4(), &done));
            let transfers = [
                scope.spawn(|| tcp(&left.namespace, right, right.inner_v4(), bytes, &up)),
                scope.spawn(|| tcp(&right.namespace, left, left.inner_v6(), bytes, &down)),
            ];
            move_under_way(program, left, right, |part| {
                for progress in [&up, &down] {
                    await_progress(progress, bytes / 5 * part);
                }
            });
            for transfer in transfers {
                transfer.join().unwrap();
            }
        });
        ping(right, left.inner_v4());
    }
}

/// Moves the left end once 1, 2 and 3 fifths of the data have `arrived` in both directions.
fn move_under_way(program: Program, left: &End, right: &End, arrived: impl Fn(u64)) {
    let seen_at = |endpoint: &str| {
        let seen = || (wg_dump(right, 1)[2] == endpoint).then_some(());
        assert!(
            eventually(DEADLINE, seen).is_some(),
            "the right end does not see the left one at {endpoint}"
        );
    };
    arrived(1);
    left.daemon
        .request(&format!("set=1\nlisten_port={PORT}\n\n"))
        .unwrap();
    seen_at(&format!("10.9.0.1:{PORT}"));
    if !program.survives_losing_its_address() {
        return;
    }
    arrived(2);
    move_to_another_address(left);
    seen_at(&format!("10.9.0.7:{PORT}"));
    arrived(3);
    move_to_ipv6(left, right, program);
    seen_at(&format!("[fd09::1]:{PORT}"));
}

/// Keeps sending. A datagram overtaken during a move points the other end back to the old address
/// until the next datagram, so there must be a next one even after TCP is done.
pub(crate) fn speak_until(from: &Namespace, to: IpAddr, done: &AtomicBool) {
    let socket = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    while !done.load(Ordering::Relaxed) {
        socket.send_to(b"here", (to, PORT)).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
}

fn move_to_another_address(end: &End) {
    let link = end.namespace.link();
    link.remove_address("veth0", "10.9.0.1/24").unwrap();
    link.add_address("veth0", "10.9.0.7/24").unwrap();
}

/// Removes the IPv4 address and switches to the other end's IPv6 address.
fn move_to_ipv6(end: &End, other: &End, program: Program) {
    end.namespace
        .link()
        .remove_address("veth0", "10.9.0.7/24")
        .unwrap();
    let endpoint = other.outer(Underlay::V6);
    if !program.changes_peers() {
        let mut config = end.config.clone();
        config.listen_port = PORT;
        config.peers[0].endpoint = Some(endpoint);
        end.daemon.configure(&config).unwrap();
        return;
    }
    let key = hex::encode(other.keys.public);
    let request = format!("set=1\npublic_key={key}\nupdate_only=true\nendpoint={endpoint}\n\n");
    // A datagram that arrived over IPv4 just before sets the endpoint back.
    let moved = eventually(DEADLINE, || {
        assert_eq!(end.daemon.request(&request).unwrap().trim(), "errno=0");
        thread::sleep(Duration::from_millis(50));
        (wg_dump(end, 1)[2] == endpoint.to_string()).then_some(())
    });
    assert!(moved.is_some());
}
