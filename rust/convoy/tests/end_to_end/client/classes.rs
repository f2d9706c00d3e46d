//! Traffic classes of datagrams, the DSCP and the marks of congestion, through forwarded ports and the gateway.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    thread,
};

use convoy_lab::Namespace;
use nix::{
    cmsg_space,
    sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt,
        sockopt::{IpRecvTos, Ipv4Tos, Ipv6RecvTClass, Ipv6TClass},
    },
};

use super::{
    gateway::place::{OUTSIDE, Place},
    user::{PROGRAM, nothing_is_left, succeeds, user, world},
    userspace::ports::{ECHO, up},
    world::BEHIND,
};
use crate::scene::DEADLINE;

const ENGINES: [&str; 2] = ["--engine=namespace", "--engine=smoltcp"];
/// Not marked, both marks of what can be marked, congestion, and the last with the DSCP of calls (EF).
const CLASSES: [u8; 5] = [0, 1, 2, 3, 0xbb];

#[test]
fn the_gateway_keeps_marks_of_congestion_both_ways_over_both_families() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    for outside in OUTSIDE {
        answer_in_class(&place.world.net, (outside, ECHO));
    }
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        for outside in OUTSIDE {
            for peer in place.peers() {
                classes_are_kept(peer, &format!("{}:{ECHO}", in_brackets(outside)));
            }
        }
        place.down();
    }
}

#[test]
fn forwarded_ports_keep_marks_of_congestion_both_ways_over_both_families() {
    let Some(world) = world("") else { return };
    for behind in BEHIND {
        answer_in_class(&world.server, (behind, ECHO));
    }
    let [v4, v6] = BEHIND.map(in_brackets);
    let listeners = [
        format!("-L=127.0.0.1:8002:{v4}:{ECHO}/udp"),
        format!("-L=[::1]:8002:{v6}:{ECHO}/udp"),
    ];
    for engine in ENGINES {
        let args: Vec<_> = listeners.iter().map(String::as_str).collect();
        up(&world, &[&args[..], &[engine]].concat());
        for to in ["127.0.0.1:8002", "[::1]:8002"] {
            classes_are_kept(&world.client, to);
        }
        let down = user(&world, PROGRAM).args(["down", "wg0"]).output();
        succeeds(&down.unwrap());
        nothing_is_left(&world);
    }
}

/// Requires that the first datagrams of a flow, and later ones, arrive and are answered in the class that they have.
fn classes_are_kept(from: &Namespace, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    for first in CLASSES {
        let socket = from.run(|| UdpSocket::bind(any).unwrap()).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        ask_for_class(&socket);
        for class in [first, 2, 3] {
            set_class(&socket, class);
            socket.send(&[class; 9]).unwrap();
            let mut answer = [0; 16];
            let (length, _, heard) = receive(&socket, &mut answer).unwrap();
            assert_eq!(
                (&answer[..length], heard),
                (&[class; 9][..], class),
                "{to}, and first {first}"
            );
        }
    }
}

/// Sends back what has arrived in the class that its bytes name, in that class.
fn answer_in_class(place: &Namespace, at: (&str, u16)) {
    let socket = place.run(|| UdpSocket::bind(at).unwrap()).unwrap();
    ask_for_class(&socket);
    thread::spawn(move || {
        let mut datagram = [0; 16];
        while let Ok((length, from, class)) = receive(&socket, &mut datagram) {
            set_class(&socket, class);
            socket.send_to(&vec![class; length], from.unwrap()).unwrap();
        }
    });
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Option<SocketAddr>, u8)> {
    let mut control = cmsg_space!(libc::c_int);
    let mut buffers = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let fd = socket.as_raw_fd();
    let received = recvmsg::<SockaddrStorage>(fd, &mut buffers, Some(&mut control), flags)?;
    let class = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4Tos(class) => Some(class),
        ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
        _ => None,
    });
    let from = received
        .address
        .and_then(|from| match from.as_sockaddr_in() {
            Some(v4) => Some(SocketAddr::V4((*v4).into())),
            None => from
                .as_sockaddr_in6()
                .map(|v6| SocketAddr::V6((*v6).into())),
        });
    Ok((received.bytes, from, class.unwrap()))
}

fn ask_for_class(socket: &UdpSocket) {
    match socket.local_addr().unwrap().is_ipv4() {
        true => setsockopt(socket, IpRecvTos, &true).unwrap(),
        false => setsockopt(socket, Ipv6RecvTClass, &true).unwrap(),
    }
}

fn set_class(socket: &UdpSocket, class: u8) {
    let class = i32::from(class);
    match socket.local_addr().unwrap().is_ipv4() {
        true => setsockopt(socket, Ipv4Tos, &class).unwrap(),
        false => setsockopt(socket, Ipv6TClass, &class).unwrap(),
    }
}

fn in_brackets(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}
