//! The router that is asked to forward a port, by TCP past a closed kill switch.

use std::{
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    os::fd::AsRawFd as _,
    time::Duration,
};

use convoy_host::{Desired, KillSwitch};
use nix::sys::{
    socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket,
        sockopt::{Mark, SendTimeout},
    },
    time::TimeVal,
};

use super::{MARK, locked};
use crate::scene::{PATIENCE, Scene};

/// Time for a connection that is to fail: one that succeeds takes none.
const MOMENT: Duration = Duration::from_millis(300);

/// Returns whether a connection from a socket with this mark succeeds.
fn connects(scene: &Scene, to: SocketAddrV4, mark: u32, patience: Duration) -> bool {
    let connects = || {
        let family = (AddressFamily::Inet, SockType::Stream);
        let socket = socket(family.0, family.1, SockFlag::empty(), None).unwrap();
        setsockopt(&socket, Mark, &mark).unwrap();
        let patience = TimeVal::new(
            patience.as_secs().cast_signed(),
            patience.subsec_micros().into(),
        );
        setsockopt(&socket, SendTimeout, &patience).unwrap();
        connect(socket.as_raw_fd(), &SockaddrIn::from(to)).is_ok()
    };
    scene.client.run(connects).unwrap()
}

#[test]
fn only_marked_tcp_to_the_default_gateway_leaves_and_only_while_it_is_asked() {
    let test = "only_marked_tcp_to_the_default_gateway_leaves_and_only_while_it_is_asked";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    let near = ["ip address add 192.168.1.9/24 dev eth0; ip address add 203.0.113.1/32 dev eth0"];
    let output = scene.router.command("sh").args(["-ec", near[0]]).output();
    assert!(output.unwrap().status.success());
    let listen = || TcpListener::bind("0.0.0.0:0").unwrap();
    let listener = scene.router.run(listen).unwrap();
    let port = listener.local_addr().unwrap().port();
    let [gateway, neighbor, far] = [[192, 168, 1, 1], [192, 168, 1, 9], [203, 0, 113, 1]]
        .map(|to| SocketAddrV4::new(Ipv4Addr::from(to), port));
    for to in [gateway, neighbor, far] {
        assert!(connects(&scene, to, 0, PATIENCE), "{to}");
    }
    let asking = Desired {
        asks_router: true,
        ..locked(KillSwitch::default())
    };
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&asking).await.unwrap();
        assert!(connects(&scene, gateway, MARK, PATIENCE));
        for (to, mark) in [
            (gateway, 0),
            (gateway, MARK + 1),
            (neighbor, MARK),
            (far, MARK),
        ] {
            assert!(!connects(&scene, to, mark, MOMENT), "{to}, mark {mark}");
        }
        // Another gateway: only that one is let out to.
        scene.ip("route replace default via 192.168.1.9");
        host.apply(&asking).await.unwrap();
        assert!(connects(&scene, neighbor, MARK, PATIENCE));
        assert!(!connects(&scene, gateway, MARK, MOMENT));
        scene.ip("route replace default via 192.168.1.1");
        host.apply(&locked(KillSwitch::default())).await.unwrap();
        for to in [gateway, neighbor, far] {
            assert!(!connects(&scene, to, MARK, MOMENT), "{to}");
        }
        host.undo().await.unwrap();
    });
}
