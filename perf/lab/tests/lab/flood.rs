//! Floods between two namespaces.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::PacketSocket;
use convoy_lab::flood::{Datagrams, Flooded, Generator, SOURCES, capture};

use crate::{DEADLINE, Pair};

const TARGET: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 9, 0, 2), 51_820);
/// Low enough for a receiver that is off the CPU for long.
const RATE: f64 = 5_000.0;

#[test]
fn a_flood_comes_from_thousands_of_addresses_and_all_of_it_arrives() {
    let Some(bed) = Bed::new("a_flood_comes_from_thousands_of_addresses") else {
        return;
    };
    let mut heard = HashSet::new();
    let mut count = 0;
    let flooded = bed.flood(&Datagrams::noise(), |from, _| {
        heard.insert(from);
        count += 1;
        count == 12_000
    });
    assert!(flooded.datagrams >= 12_000);
    assert_eq!(heard.len(), 12_000);
    assert!(heard.iter().all(is_spoofed));
}

#[test]
fn a_train_arrives_as_its_segments_of_which_the_last_is_shorter() {
    let Some(bed) = Bed::new("a_train_arrives_as_its_segments") else {
        return;
    };
    let mut lengths = Vec::new();
    bed.flood(&Datagrams::trains(1_400), |_, datagram| {
        lengths.push(datagram.len());
        lengths.len() == 2 * 46
    });
    let train = [&[1_400; 45][..], &[467]].concat();
    assert_eq!(lengths, [train.clone(), train].concat());
}

#[test]
fn a_captured_message_is_replayed_byte_for_byte() {
    let Some(bed) = Bed::new("a_captured_message_is_replayed") else {
        return;
    };
    let wire = PacketSocket::hearing(&bed.pair.right, "veth").unwrap();
    let message = |n: u8| [&[4, 0, 0, 0], &[n; 60][..]].concat();
    let bind = || UdpSocket::bind("10.9.0.1:0");
    let sender = bed.pair.left.run(bind).unwrap().unwrap();
    sender.send_to(b"\x01another kind", TARGET).unwrap();
    for n in 0..3 {
        sender.send_to(&message(n), TARGET).unwrap();
    }
    let captured = capture(&wire, TARGET, 4, 3, DEADLINE).unwrap();
    assert_eq!(captured, [0, 1, 2].map(message));

    let mut seen = HashSet::new();
    bed.flood(&Datagrams::replayed(captured), |from, datagram| {
        if is_spoofed(&from) {
            seen.insert(datagram.to_vec());
        }
        seen.len() == 3
    });
    assert_eq!(seen, HashSet::from([0, 1, 2].map(message)));
}

fn is_spoofed(source: &IpAddr) -> bool {
    source.to_string().starts_with("198.18.")
}

/// A flooding namespace, and another with a socket.
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

    /// Floods the socket until `each` has seen enough.
    fn flood(&self, datagrams: &Datagrams, mut each: impl FnMut(IpAddr, &[u8]) -> bool) -> Flooded {
        let mut generator = Generator::new(&self.pair.left, TARGET).unwrap();
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = scope.spawn(|| generator.run(datagrams, RATE, &end));
            let deadline = Instant::now() + DEADLINE;
            let mut buffer = vec![0; 65_535];
            let mut is_enough = false;
            while !is_enough && Instant::now() < deadline {
                let heard = self.socket.recv_from(&mut buffer);
                is_enough = heard.is_ok_and(|(len, from)| each(from.ip(), &buffer[..len]));
            }
            end.store(true, Ordering::Relaxed);
            let flooded = flood.join().unwrap().unwrap();
            assert!(is_enough, "{flooded:?}");
            flooded
        })
    }
}
