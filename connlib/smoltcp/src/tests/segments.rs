//! Fuzzes connections that peers begin through a gateway, with segments of any kind, against a model of both streams.

mod connection;

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use convoy_fuzz::{Result, Unstructured};
use rustix::event::PollFlags;

use self::connection::Connection;
use super::{wire::*, *};
use convoy_packet::{
    packet::{Packet, TCP},
    segment::{ACK, FIN, PSH, RST, SYN, Segment, Tuple},
    vnet::VnetHeader,
};

const TARGETS: [(&str, &str); 2] = [(B, "198.51.100.7"), (B6, "2001:db8:51::7")];
const CONNECTIONS: usize = 3;

#[test]
fn fuzz_segments() {
    convoy_fuzz::run("segments", 300, 600, segments);
}

/// Whatever came before, both streams arrive whole and in order, unless a reset that may have been accepted ended them;
/// and nothing is left over.
fn segments(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new();
    let outcome = world.live(input);
    world.end();
    outcome
}

struct World {
    stack: Stack,
    inlet: Inlet,
    listener: Listener,
    wire: Wire,
    connections: Vec<Connection>,
}

impl World {
    fn new() -> Self {
        let (stack, wire) = scene();
        let inlet = stack.inlet().unwrap();
        Self {
            listener: inlet.listener(),
            inlet,
            stack,
            wire,
            connections: Vec::new(),
        }
    }

    fn live(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        while !input.is_empty() {
            if self.connections.len() < CONNECTIONS && input.ratio(1, 8)? {
                self.begin(input)?;
            }
            if !self.connections.is_empty() {
                let index = input.choose_index(self.connections.len())?;
                let it = &mut self.connections[index];
                match input.int_in_range(0..=5)? {
                    0 => it.read(input.int_in_range(1..=20_000)?),
                    1 => it.write(input.int_in_range(1..=5_000)?),
                    _ => it.send_any(&self.wire, input)?,
                }
            }
            self.receive();
        }
        Ok(())
    }

    /// A peer begins a connection, and the gateway admits it.
    fn begin(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let (peer, target) = *input.choose(&TARGETS)?;
        let near_wrap = u32::MAX - input.int_in_range(0..=2_000)?;
        let first = *input.choose(&[7, near_wrap])?;
        let length = *input.choose(&[0, 1, 3_000, 100_000])?;
        let ends = Tuple {
            local: at(peer, 1_000 + self.connections.len() as u16),
            remote: at(target, 80),
        };
        let it = Connection::new(ends, first, length);
        self.wire.send(&it.packet(SYN, first, 0, u16::MAX, &[]));
        let syn = self.next_of_inlet();
        self.inlet.admit(&syn).unwrap();
        self.connections.push(it);
        Ok(())
    }

    fn next_of_inlet(&self) -> Vec<u8> {
        let mut packet = vec![0; 70_000];
        let begun = std::time::Instant::now();
        loop {
            match self.inlet.read(&mut packet) {
                Ok((_, length)) => return packet[..length].to_vec(),
                Err(_) => assert!(begun.elapsed() < DEADLINE, "nothing came"),
            }
            std::thread::yield_now();
        }
    }

    /// Takes what the stack has sent, and the connections that it has established.
    fn receive(&mut self) {
        while is_ready_within(&self.wire.0, PollFlags::IN, Duration::ZERO) {
            let packet = self.wire.receive();
            let packet = Packet::parse(VnetHeader::default(), &packet).unwrap();
            if packet.protocol != TCP {
                continue;
            }
            let segment = Segment::parse(packet.payload()).unwrap();
            let to = SocketAddr::new(packet.destination, segment.destination_port);
            let it = self.connections.iter_mut().find(|it| it.ends.local == to);
            it.unwrap()
                .receive(&segment, &packet.payload()[segment.header_len..]);
        }
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(accepted) = pin!(self.listener.accept()).poll(&mut context) {
            let (stream, from) = accepted.unwrap();
            let it = self.connections.iter_mut().find(|it| it.ends.local == from);
            it.unwrap().stream = Some(stream);
        }
    }

    /// All peers behave from now on.
    fn end(mut self) {
        let begun = std::time::Instant::now();
        while self.connections.iter().any(|it| !it.is_over) {
            assert!(
                begun.elapsed() < DEADLINE,
                "the streams do not end: {:?}",
                self.connections
            );
            // What it sent before it left the table is received first.
            let has_left = self.connections.iter().map(|it| self.has_left(it));
            let has_left: Vec<bool> = has_left.collect();
            self.receive();
            let all = self.connections.iter_mut().zip(has_left);
            for (it, has_left) in all.filter(|(it, _)| !it.is_over) {
                it.read(usize::MAX);
                it.shut();
                it.send_rest(&self.wire);
                it.is_over = it.is_complete() || has_left;
                assert!(it.is_complete() || !has_left || it.may_be_reset, "{it:?}");
            }
            is_ready_within(&self.wire.0, PollFlags::IN, Duration::from_millis(10));
        }
        self.connections.clear();
        while self.stack.flows() > 0 {
            assert!(begun.elapsed() < DEADLINE, "a connection is left");
            self.receive_nothing();
        }
    }

    fn has_left(&self, it: &Connection) -> bool {
        let tuple = Tuple {
            local: it.ends.remote,
            remote: it.ends.local,
        };
        self.stack.shared.table().find(&tuple).is_none()
    }

    fn receive_nothing(&self) {
        while is_ready_within(&self.wire.0, PollFlags::IN, Duration::ZERO) {
            self.wire.receive();
        }
        std::thread::yield_now();
    }
}
