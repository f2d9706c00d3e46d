//! Connections through `-L` and `-R` that do not end as most do, with either engine.

mod device;
mod names;
mod paths;
mod pending;

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    time::Duration,
};

use convoy_lab::{Namespace, eventually};
use nix::sys::socket::{MsgFlags, send};
use socket2::SockRef;

use super::super::{
    user::world,
    userspace::{
        down,
        ports::{ECHO, connect, echo_datagrams, up},
    },
    world::BEHIND,
};
use crate::scene::DEADLINE;

const ENGINES: [&str; 2] = ["--engine=namespace", "--engine=smoltcp"];
/// Behind the tunnel, and at the client.
const PORTS: [u16; 2] = [7_001, 7_002];

#[test]
fn urgent_data_and_all_behind_it_arrive() {
    for_each_direction(|[mut near, mut far]| {
        let long = [b'z'; 5_000];
        near.write_all(b"abc").unwrap();
        let sent = send(near.as_raw_fd(), b"!", MsgFlags::MSG_OOB);
        assert_eq!(sent, Ok(1));
        near.write_all(b"def").unwrap();
        near.write_all(&long).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived, [b"abc!def", &long[..]].concat());
    });
}

#[test]
fn a_reset_behind_an_end_reaches_the_other_side() {
    for_each_direction(|[near, mut far]| {
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        assert!(far.take_error().unwrap().is_none());
        SockRef::from(&near)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(near);
        let is_told = || far.take_error().unwrap();
        assert!(eventually(DEADLINE, is_told).is_some());
    });
}

#[test]
fn answers_leave_from_the_address_of_the_client_that_was_asked() {
    let Some(world) = world("DNS = 10.8.0.1\n") else {
        return;
    };
    world.shell("ip addr add 192.168.1.77/24 dev eth0");
    echo_datagrams(&world.server, (BEHIND[0], ECHO));
    let forward = format!("-L=*:5300:{}:{ECHO}/udp", BEHIND[0]);
    for engine in ENGINES {
        up(&world, &[&forward, "--allow=192.168.1.0/24", engine]);
        let socket = world.net.run(|| UdpSocket::bind("192.168.1.1:0").unwrap());
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        for asked in ["192.168.1.77:5300", "192.168.1.2:5300"] {
            let asked: SocketAddr = asked.parse().unwrap();
            socket.send_to(b"question", asked).unwrap();
            assert_eq!(socket.recv_from(&mut [0; 9]).unwrap(), (8, asked));
        }
        down(&world);
    }
}

/// Runs `test` with a connection by `-L` and one by `-R`, of each engine: the end that connected and the one that
/// accepted.
fn for_each_direction(test: fn([TcpStream; 2])) {
    let Some(world) = world("DNS = 10.8.0.1\n") else {
        return;
    };
    let [behind, at_client] = PORTS;
    let forward = format!("-L=8001:{}:{behind}", BEHIND[0]);
    let reverse = format!("-R=2222:127.0.0.1:{at_client}");
    let listen = |place: &Namespace, at| place.run(|| TcpListener::bind(at).unwrap()).unwrap();
    let targets = [
        listen(&world.server, (BEHIND[0], behind)),
        listen(&world.client, ("127.0.0.1", at_client)),
    ];
    for engine in ENGINES {
        up(&world, &[&forward, &reverse, engine]);
        test(pair(&world.client, ("127.0.0.1", 8001), &targets[0]));
        test(pair(&world.server, ("10.8.0.2", 2222), &targets[1]));
        down(&world);
    }
}

fn pair(from: &Namespace, to: (&str, u16), target: &TcpListener) -> [TcpStream; 2] {
    let near = connect(from, to).unwrap();
    let (far, _) = target.accept().unwrap();
    far.set_read_timeout(Some(DEADLINE)).unwrap();
    [near, far]
}
