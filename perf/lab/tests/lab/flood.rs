//! Floods between two namespaces.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::PacketSocket;
use convoy_lab::flood::{Datagrams, Generator, SOURCES, capture};

use crate::{DEADLINE, Pair};

const TARGET: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 9, 0, 2), 51_820);
/// A rate low enough for a receiver that gets no CPU for long.
const RATE: f64 = 5_000.0;

#[test]
fn floods_come_from_thousands_of_addresses_in_trains_and_byte_for_byte() {
    let test = "floods_come_from_thousands_of_addresses_in_trains_and_byte_for_byte";
    let Some(bed) = Bed::new(test) else {
        return;
    };
    let heard = bed.flood(&Datagrams::noise(), 12_000);
    let sources: HashSet<_> = heard.into_iter().map(|(from, _)| from).collect();
    assert_eq!(sources.len(), 12_000);
    let is_ours = |ip: &IpAddr| ip.to_string().starts_with("198.18.");
    assert!(sources.iter().all(is_ours));

    let train = [&[1_400; 45][..], &[467]].concat();
    let heard = bed.flood(&Datagrams::trains(1_400), 2 * train.len());
    let lengths: Vec<_> = heard.iter().map(|(_, datagram)| datagram.len()).collect();
    assert_eq!(lengths, [train.clone(), train].concat());

    let wire = PacketSocket::hearing(&bed.pair.right, "veth").unwrap();
    let messages = [0, 1, 2].map(|n: u8| [&[4, 0, 0, 0], &[n; 60][..]].concat());
    let bind = || UdpSocket::bind("10.9.0.1:0");
    let sender = bed.pair.left.run(bind).unwrap().unwrap();
    sender.send_to(b"\x01another kind", TARGET).unwrap();
    for message in &messages {
        sender.send_to(message, TARGET).unwrap();
    }
    let captured = capture(&wire, TARGET, 4, 3, DEADLINE).unwrap();
    assert_eq!(captured, messages);
    let heard = bed.flood(&Datagrams::replayed(captured), 4 + 3);
    let replayed: Vec<_> = heard[4..].iter().map(|(_, datagram)| datagram).collect();
    assert_eq!(replayed, messages.each_ref());
}

/// A flooding namespace, and another one with a socket.
struct Bed {
    pair: Pair,
    socket: UdpSocket,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        let pair = Pair::as_root(test)?;
        let gateway = "10.9.0.1".parse().unwrap();
        let link = pair.right.link();
        link.add_route_through(SOURCES, gateway).unwrap();
        let socket = pair.right.run(|| UdpSocket::bind(TARGET)).unwrap().unwrap();
        let patience = Some(Duration::from_millis(50));
        socket.set_read_timeout(patience).unwrap();
        Some(Self { pair, socket })
    }

    /// Floods the socket until it has received `count` datagrams.
    fn flood(&self, datagrams: &Datagrams, count: usize) -> Vec<(IpAddr, Vec<u8>)> {
        let mut generator = Generator::new(&self.pair.left, None, TARGET).unwrap();
        let end = AtomicBool::new(false);
        let mut heard = Vec::new();
        let flooded = thread::scope(|scope| {
            let flood = scope.spawn(|| generator.run(datagrams, RATE, &end));
            let deadline = Instant::now() + DEADLINE;
            let mut buffer = vec![0; 65_535];
            while heard.len() < count && Instant::now() < deadline {
                if let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
                    heard.push((from.ip(), buffer[..len].to_vec()));
                }
            }
            end.store(true, Ordering::Relaxed);
            flood.join().unwrap().unwrap()
        });
        assert_eq!(heard.len(), count, "{flooded:?}");
        while self.socket.recv_from(&mut [0; 1]).is_ok() {}
        heard
    }
}
