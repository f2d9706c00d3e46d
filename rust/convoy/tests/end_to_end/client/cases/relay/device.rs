//! A device behind the peer whose TCP is made by hand, for what no kernel sends.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use convoy_lab::{PacketSocket, eventually};
use convoy_packet::segment::{ACK, PSH, RST, SYN, Segment};
use etherparse::{PacketBuilder, TcpHeader};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    super::super::{
        user::world_of,
        userspace::{
            down,
            ports::{ECHO, up},
        },
        world::EVERYTHING,
    },
    DEADLINE, ENGINES, Namespace,
};

/// An address that no kernel has, so that none resets the device's connections.
const DEVICE: [u8; 4] = [10, 8, 0, 77];
const CLIENT: [u8; 4] = [10, 8, 0, 2];
/// The port of the client's end, inside.
const INSIDE: u16 = 2_222;
/// Bytes of an IPv4 header without options.
const HEADER: usize = 20;

#[test]
fn a_device_that_has_restarted_connects_again_from_the_same_port() {
    for_each_engine(|device, listener| {
        let (mut before, _) = device.connect(1_000, listener);
        device.send(SYN, 100_000_000, 0, b"");
        // RFC 9293 §3.10.7.4: the open connection answers, which the device knows nothing of.
        let challenge = device.hear(|it| it.payload_len == 0 && it.flags == ACK);
        device.send(RST, challenge.acknowledged, 0, b"");
        device.connect(100_000_000, listener);
        assert!(before.read(&mut [0]).is_err());
    });
}

#[test]
fn data_that_was_overtaken_is_not_sent_again() {
    for_each_engine(|device, listener| {
        let (mut stream, theirs) = device.connect(1_000, listener);
        stream.write_all(&[b's'; 400]).unwrap();
        device.hear(|it| it.payload_len == 400);
        let all = theirs.wrapping_add(400);
        device.send(ACK | PSH, 1_006, all, b"second");
        device.send(ACK | PSH, 1_001, theirs, b"first");
        let mut both = [0; 11];
        stream.read_exact(&mut both).unwrap();
        assert_eq!(&both, b"firstsecond");
    });
}

/// Runs `test` with a device, and with the target of a port of each engine.
fn for_each_engine(test: fn(&Device, &TcpListener)) {
    let peer = format!("{EVERYTHING}PersistentKeepalive = 25\n");
    let Some(world) = world_of("DNS = 10.8.0.1\n", &peer, &[]) else {
        return;
    };
    let target = ("127.0.0.1", ECHO);
    let listen = || TcpListener::bind(target).unwrap();
    let listener = world.client.run(listen).unwrap();
    for engine in ENGINES {
        up(
            &world,
            &[&format!("-R={INSIDE}:{}:{}", target.0, target.1), engine],
        );
        test(&Device::new(&world.server), &listener);
        down(&world);
    }
}

struct Device {
    raw: Socket,
    wire: PacketSocket,
}

impl Device {
    const PORT: u16 = 40_000;

    fn new(server: &Namespace) -> Self {
        let raw = Protocol::from(libc::IPPROTO_RAW);
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(raw)).unwrap();
        Self {
            raw: server.run(open).unwrap(),
            wire: PacketSocket::hearing(server, "wg0").unwrap(),
        }
    }

    /// Connects, with this first number; returns the target's end, and the first number from there.
    fn connect(&self, first: u32, listener: &TcpListener) -> (TcpStream, u32) {
        let answer = eventually(DEADLINE, || {
            // The tunnel may have no session yet.
            self.send(SYN, first, 0, b"");
            self.hear_within(Duration::from_secs(1), |it| it.flags == SYN | ACK)
        });
        let answer = answer.unwrap();
        assert_eq!(answer.acknowledged, first + 1);
        let theirs = answer.sequence.wrapping_add(1);
        self.send(ACK, first + 1, theirs, b"");
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        (stream, theirs)
    }

    fn send(&self, flags: u8, sequence: u32, acknowledged: u32, payload: &[u8]) {
        let mut header = TcpHeader::new(Self::PORT, INSIDE, sequence, 64_000);
        let has = |flag| flags & flag != 0;
        (header.syn, header.rst) = (has(SYN), has(RST));
        (header.psh, header.ack) = (has(PSH), has(ACK));
        header.acknowledgment_number = acknowledged;
        let mut packet = Vec::new();
        PacketBuilder::ipv4(DEVICE, CLIENT, 64)
            .tcp_header(header)
            .write(&mut packet, payload)
            .unwrap();
        let to = SocketAddr::from((CLIENT, 0));
        self.raw.send_to(&packet, &to.into()).unwrap();
    }

    fn hear(&self, is_it: impl Fn(&Segment) -> bool) -> Segment {
        self.hear_within(DEADLINE, is_it).unwrap()
    }

    /// Waits for a segment to the device.
    fn hear_within(&self, limit: Duration, is_it: impl Fn(&Segment) -> bool) -> Option<Segment> {
        let begun = Instant::now();
        loop {
            let left = limit.checked_sub(begun.elapsed())?;
            let frame = self.wire.receive(left).unwrap()?;
            if frame.len() < HEADER || frame[16..HEADER] != DEVICE {
                continue;
            }
            let segment = Segment::parse(&frame[HEADER..]);
            if let Some(segment) = segment.filter(&is_it) {
                return Some(segment);
            }
        }
    }
}
