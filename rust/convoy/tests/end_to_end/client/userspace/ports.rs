//! Clients and servers of forwarded ports.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket},
    process::Output,
    thread,
};

use convoy_lab::{Namespace, eventually};
use serde_json::Value;

use super::super::{
    user::{FILE, PROGRAM, said, succeeds, user},
    world::World,
};
use crate::scene::DEADLINE;

/// The port of servers.
pub(in super::super) const ECHO: u16 = 7_007;

/// Brings the tunnel up in the background with these arguments.
pub(in super::super) fn up(world: &World, args: &[&str]) {
    succeeds(&up_with(world, args));
}

pub(in super::super) fn up_with(world: &World, args: &[&str]) -> Output {
    let mut command = user(world, PROGRAM);
    command.args(["up", FILE, "--userspace"]).args(args);
    command.output().unwrap()
}

/// Returns this user's only tunnel as `convoy status --json` describes it.
pub(in super::super) fn status(world: &World) -> Value {
    let mut command = user(world, PROGRAM);
    let shown = said(&command.args(["status", "--json"]).output().unwrap());
    let mut shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["interfaces"][0]["name"], "wg0", "{shown}");
    shown["interfaces"][0].take()
}

/// The listeners at addresses that end so.
pub(in super::super) fn forwards(status: &Value, end: &str) -> Vec<Value> {
    let all = status["forwards"].as_array().unwrap().iter();
    let is_it = |it: &&Value| it["listen"][0].as_str().unwrap().ends_with(end);
    let found: Vec<_> = all.filter(is_it).cloned().collect();
    assert!(!found.is_empty(), "{end}: {status}");
    found
}

/// Sends back what it receives.
pub(in super::super) fn echo(place: &Namespace, at: impl ToSocketAddrs + Send) {
    let listener = place.run(|| TcpListener::bind(at).unwrap()).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
}

pub(in super::super) fn echo_datagrams(place: &Namespace, at: impl ToSocketAddrs + Send) {
    let socket = place.run(|| UdpSocket::bind(at).unwrap()).unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 8_192];
        while let Ok((length, from)) = socket.recv_from(&mut datagram) {
            socket.send_to(&datagram[..length], from).unwrap();
        }
    });
}

pub(in super::super) fn connect(
    place: &Namespace,
    to: impl ToSocketAddrs + Send,
) -> io::Result<TcpStream> {
    let to: SocketAddr = to.to_socket_addrs()?.next().unwrap();
    let connected = place.run(|| TcpStream::connect_timeout(&to, DEADLINE));
    let stream = connected.unwrap()?;
    stream.set_read_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// Requires that the other end sends back what it receives, and ends with this one.
pub(in super::super) fn echoes(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).unwrap();
    assert_eq!(back, "hello");
}

pub(in super::super) fn answers_datagrams(place: &Namespace, port: u16) {
    let socket = place.run(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let socket = socket.unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.send(b"question").unwrap();
    let mut answer = [0; 16];
    let length = socket.recv(&mut answer).unwrap();
    assert_eq!(&answer[..length], b"question");
}

/// Waits until a client gets an answer.
pub(in super::super) fn is_served(world: &World, port: u16) {
    let served = || {
        let mut stream = connect(&world.client, ("127.0.0.1", port)).ok()?;
        stream.write_all(b"x").ok()?;
        stream.read_exact(&mut [0]).ok()
    };
    assert!(eventually(DEADLINE, served).is_some());
}

/// A connection to [`ECHO`] of a host that the proxy looks up; or its answer.
pub(in super::super) fn socks5(world: &World, port: u16, host: &str) -> Result<TcpStream, u8> {
    let mut stream = connect(&world.client, ("127.0.0.1", port)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).unwrap();
    if method[1] != 0 {
        return Err(method[1]);
    }
    let length = u8::try_from(host.len()).unwrap();
    let head = [5, 1, 0, 3, length];
    let request = [&head[..], host.as_bytes(), &ECHO.to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    match reply[1] {
        0 => Ok(stream),
        refusal => Err(refusal),
    }
}

/// Requires that a datagram to [`ECHO`] of a host that the proxy looks up is answered by way of it.
pub(in super::super) fn socks5_answers_datagrams(world: &World, port: u16, host: &str) {
    let mut control = connect(&world.client, ("127.0.0.1", port)).unwrap();
    control
        .write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let mut reply = [0; 12];
    control.read_exact(&mut reply).unwrap();
    assert_eq!((reply[1], reply[3]), (0, 0), "{reply:?}");
    let relay = u16::from_be_bytes([reply[10], reply[11]]);
    let socket = world.client.run(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let socket = socket.unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = u8::try_from(host.len()).unwrap();
    let head = [&[0, 0, 0, 3, length], host.as_bytes(), &ECHO.to_be_bytes()].concat();
    let datagram = [&head[..], b"question"].concat();
    socket.send_to(&datagram, ("127.0.0.1", relay)).unwrap();
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer).unwrap();
    assert!(answer[..length].ends_with(b"question"), "{answer:?}");
}

/// The same by HTTP.
pub(in super::super) fn http_connect(world: &World, port: u16, host: &str) -> TcpStream {
    let mut stream = connect(&world.client, ("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "CONNECT {host}:{ECHO} HTTP/1.1\r\nHost: {host}\r\n\r\n"
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    stream
}
