//! Clients against servers in memory, under simulated time.

use std::collections::BTreeMap;

use stun_types::{
    attribute::{ErrorCode, XorMappedAddress},
    message::{Message, MessageWriteVec},
    prelude::{MessageWrite, MessageWriteExt},
};

use super::*;

mod hostile;
mod schedule;

const START: Duration = Duration::from_secs(1000);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn server(n: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, n], 3478))
}

fn mapped(n: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 1], n))
}

/// A server's treatment of requests.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Names this address at once.
    Answer(SocketAddr),
    /// Reports an error at once.
    Refuse,
    /// Loses the request.
    Lose,
}

/// A client, and servers that answer at once or not at all.
struct World {
    client: Client,
    now: Duration,
    servers: BTreeMap<SocketAddr, Does>,
    /// Requests so far, and when.
    sent: Vec<(Duration, Transmit)>,
    random: u64,
}

impl World {
    fn new(servers: &[(SocketAddr, Does)]) -> Self {
        let mut client = Client::new();
        let addresses: Vec<_> = servers.iter().map(|(address, _)| *address).collect();
        client.set_servers(&addresses, START);
        Self {
            client,
            now: START,
            servers: servers.iter().copied().collect(),
            sent: Vec::new(),
            random: 0,
        }
    }

    fn started(servers: &[(SocketAddr, Does)]) -> Self {
        let mut world = Self::new(servers);
        world.client.start(START);
        world.exchange();
        world
    }

    /// Sends all that is due, and delivers the answers.
    fn exchange(&mut self) {
        for _ in 0..100 {
            let Some(transmit) = self.poll() else {
                return;
            };
            if let Some(bytes) = self.answer(&transmit) {
                let from = transmit.to;
                assert!(self.client.handle_datagram(from, &bytes, self.now));
            }
        }
        panic!("requests without end");
    }

    fn poll(&mut self) -> Option<Transmit> {
        self.random += 1;
        let random = u128::from(self.random).to_le_bytes();
        let random = random.first_chunk().copied();
        let transmit = self.client.poll_transmit(|| random, self.now)?;
        self.sent.push((self.now, transmit));
        Some(transmit)
    }

    fn answer(&self, transmit: &Transmit) -> Option<Vec<u8>> {
        match self.servers.get(&transmit.to)? {
            Does::Answer(mapped) => Some(success(&transmit.bytes, *mapped)),
            Does::Refuse => Some(error(&transmit.bytes)),
            Does::Lose => None,
        }
    }

    /// Lets time pass, from one due time to the next.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..10_000 {
            self.exchange();
            let Some(at) = self.client.poll_timeout().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            assert!(at > self.now, "a timeout that passes for ever");
            self.now = at;
            self.client.handle_timeout(at);
        }
        panic!("time stands still");
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.client.addresses().collect()
    }

    /// Times of the requests since the start, in milliseconds.
    fn times(&self) -> Vec<u128> {
        let times = self.sent.iter().map(|(at, _)| *at - START);
        times.map(|it| it.as_millis()).collect()
    }
}

fn success(request: &[u8], mapped: SocketAddr) -> Vec<u8> {
    let request = Message::from_bytes(request).unwrap();
    let mut answer = Message::builder_success(&request, MessageWriteVec::new());
    let mapped = XorMappedAddress::new(mapped, request.transaction_id());
    answer.add_attribute(&mapped).unwrap();
    answer.finish()
}

fn error(request: &[u8]) -> Vec<u8> {
    let request = Message::from_bytes(request).unwrap();
    let mut answer = Message::builder_error(&request, MessageWriteVec::new());
    let code = ErrorCode::new(500, "Server Error").unwrap();
    answer.add_attribute(&code).unwrap();
    answer.finish()
}

#[test]
fn an_answer_makes_an_address_known() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    assert_eq!(world.addresses(), [mapped(1)]);
    assert!(world.client.take_changed());
    assert!(!world.client.take_changed());
}

#[test]
fn servers_of_both_families_are_asked() {
    let server_v6 = address("[2001:db8::1]:3478");
    let mapped_v6 = address("[2001:db8:1::7]:40000");
    let world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server_v6, Does::Answer(mapped_v6)),
    ]);
    assert_eq!(world.addresses(), [mapped(1), mapped_v6]);
}

#[test]
fn an_address_that_two_servers_name_is_listed_once() {
    let world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server(2), Does::Answer(mapped(1))),
    ]);
    assert_eq!(world.addresses(), [mapped(1)]);
}

#[test]
fn different_addresses_are_listed_in_the_order_of_their_servers() {
    let world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server(2), Does::Answer(mapped(1))),
        (server(3), Does::Answer(mapped(3))),
    ]);
    assert_eq!(world.addresses(), [mapped(1), mapped(3)]);
}

#[test]
fn another_mapping_is_noticed_by_the_next_refresh_and_verified_at_once() {
    let both = |n| {
        [
            (server(1), Does::Answer(mapped(n))),
            (server(2), Does::Answer(mapped(n))),
        ]
    };
    let mut world = World::new(&both(1));
    world.client.start(START);
    // The second server's answer is lost at first, so its turns come half a second after the first one's.
    world.servers.insert(server(2), Does::Lose);
    world.exchange();
    world.servers.extend(both(1));
    world.run(10 * SECOND);
    world.client.take_changed();
    world.servers.extend(both(2));
    world.run(10 * SECOND);
    assert!(world.client.take_changed());
    assert_eq!(world.addresses(), [mapped(2)]);
    assert_eq!(world.times(), [0, 0, 500, 20_000, 20_000]);
}

#[test]
fn a_nat_with_another_port_for_each_request_sets_off_no_storm() {
    let mut world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server(2), Does::Answer(mapped(2))),
    ]);
    for n in 1..10 {
        world
            .servers
            .insert(server(1), Does::Answer(mapped(10 * n + 1)));
        world
            .servers
            .insert(server(2), Does::Answer(mapped(10 * n + 2)));
        world.run(20 * SECOND);
        assert!(world.client.take_changed());
        assert_eq!(world.sent.len(), usize::from(2 + 2 * n));
    }
}

#[test]
fn an_unchanged_address_is_no_news() {
    let mut world = World::started(&[(server(1), Does::Answer(mapped(1)))]);
    world.client.take_changed();
    world.run(100 * SECOND);
    assert_eq!(world.sent.len(), 6);
    assert!(!world.client.take_changed());
}

#[test]
fn servers_that_stay_keep_their_answers() {
    let mut world = World::started(&[
        (server(1), Does::Answer(mapped(1))),
        (server(2), Does::Answer(mapped(2))),
    ]);
    world.client.take_changed();
    world.now += SECOND;
    world.client.set_servers(&[server(2), server(3)], world.now);
    assert_eq!(world.addresses(), [mapped(2)]);
    assert!(world.client.take_changed());
    world.servers.insert(server(3), Does::Answer(mapped(3)));
    world.exchange();
    assert_eq!(world.sent.len(), 3);
    assert_eq!(world.sent[2].1.to, server(3));
    assert_eq!(world.addresses(), [mapped(2), mapped(3)]);
}

#[test]
fn unusable_and_surplus_servers_are_ignored() {
    let mut world = World::new(&[]);
    let unusable = ["0.0.0.0:1", "[::]:1", "224.0.0.1:1", "192.0.2.1:0"].map(address);
    world.client.set_servers(&unusable, START);
    world.client.start(START);
    assert_eq!(world.client.poll_timeout(), None);
    let many: Vec<_> = (1..10).flat_map(|n| [server(n), server(n)]).collect();
    world
        .client
        .set_servers(&[&unusable[..], &many].concat(), START);
    world.exchange();
    let asked: Vec<_> = world.sent.iter().map(|(_, it)| it.to).collect();
    assert_eq!(asked, [1, 2, 3, 4].map(server));
}
