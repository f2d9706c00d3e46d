//! Floods between two namespaces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddrV4, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use convoy_lab::{
    Lab, Namespace, PacketSocket,
    flood::{Datagrams, Flooded, Generator, SOURCES, capture},
    require_root_lab,
};

const DEADLINE: Duration = Duration::from_secs(10);
const PORT: u16 = 51_820;
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
    let network = |ip: &IpAddr| ip.to_string().starts_with("198.18.");
    assert!(heard.iter().all(network));
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
fn what_was_captured_is_replayed_byte_for_byte() {
    let Some(bed) = Bed::new("what_was_captured_is_replayed") else {
        return;
    };
    let wire = PacketSocket::hearing(&bed.right, "veth").unwrap();
    let message = |n: u8| [&[4, 0, 0, 0], &[n; 60][..]].concat();
    let bind = || UdpSocket::bind("10.9.0.1:0");
    let sender = bed.left.run(bind).unwrap().unwrap();
    sender.send_to(b"\x01another kind", bed.target).unwrap();
    for n in 0..3 {
        sender.send_to(&message(n), bed.target).unwrap();
    }
    let captured = capture(&wire, bed.target, 4, 3, DEADLINE).unwrap();
    assert_eq!(captured, [0, 1, 2].map(message));

    let mut seen = HashSet::new();
    bed.flood(&Datagrams::replayed(captured), |from, datagram| {
        let is_replayed = from.to_string().starts_with("198.18.");
        if is_replayed {
            seen.insert(datagram.to_vec());
        }
        seen.len() == 3
    });
    assert_eq!(seen, HashSet::from([0, 1, 2].map(message)));
}

/// A flooding namespace, and another with a socket.
struct Bed {
    left: Namespace,
    right: Namespace,
    socket: UdpSocket,
    target: SocketAddrV4,
    _lab: Lab,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        if !require_root_lab(test) {
            return None;
        }
        let lab = Lab::new().unwrap();
        let (left, right) = (
            lab.namespace("left").unwrap(),
            lab.namespace("right").unwrap(),
        );
        let (a, b) = (["10.9.0.1/24"], ["10.9.0.2/24"]);
        lab.veth(&left, "veth", &a, &right, "veth", &b, 1_500)
            .unwrap();
        let gateway = "10.9.0.1".parse().unwrap();
        right.link().add_route_through(SOURCES, gateway).unwrap();
        let target = SocketAddrV4::new([10, 9, 0, 2].into(), PORT);
        let socket = right.run(|| UdpSocket::bind(target)).unwrap().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        Some(Self {
            left,
            right,
            socket,
            target,
            _lab: lab,
        })
    }

    /// Floods the socket until `each` has seen enough.
    fn flood(&self, datagrams: &Datagrams, each: impl FnMut(IpAddr, &[u8]) -> bool) -> Flooded {
        let neighbour = self.right.link().ethernet_address("veth").unwrap();
        let mut generator = Generator::new(&self.left, "veth", neighbour, self.target).unwrap();
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = scope.spawn(|| generator.run(datagrams, RATE, &end));
            let is_enough = self.receive(each);
            end.store(true, Ordering::Relaxed);
            let flooded = flood.join().unwrap().unwrap();
            assert!(is_enough, "{flooded:?}");
            flooded
        })
    }

    /// Whether enough came.
    fn receive(&self, mut each: impl FnMut(IpAddr, &[u8]) -> bool) -> bool {
        let deadline = Instant::now() + DEADLINE;
        let mut buffer = vec![0; 65_535];
        while Instant::now() < deadline {
            if let Ok((len, from)) = self.socket.recv_from(&mut buffer)
                && each(from.ip(), &buffer[..len])
            {
                return true;
            }
        }
        false
    }
}
