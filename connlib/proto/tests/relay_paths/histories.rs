//! Random histories of three clients, their hub and a TURN server on a bad network. In the end they talk, the relay is
//! given back where nobody needs it, and nobody was sent to who was not named.

use std::{net::IpAddr, time::Duration};

use convoy_proto::config::RelayState;

use crate::{
    common::{
        Host, SECOND,
        weather::{Dice, Weather},
    },
    network::{Nat, Stack, v6_of},
    server::{BOTH, ONLY_V4, ONLY_V6},
    world::{A, B, C, HUB, World},
};

/// Histories, and steps of each.
const HISTORIES: u64 = 6;
const STEPS: usize = 40;

#[test]
fn whatever_happens_the_peers_talk_in_the_end_and_no_stranger_is_sent_to() {
    for seed in 1..=HISTORIES {
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.step();
        }
        history.ends_well();
    }
}

struct History {
    world: World,
    dice: Dice,
    seed: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let stacks = match seed % 2 {
            0 => [Stack::Both; 3],
            _ => [Stack::V4; 3],
        };
        let mut world = World::of(stacks, BOTH, &[A, B, C], &[A, B]);
        world.dice = Dice(seed * 7919);
        world.weather = Weather {
            lost: 20,
            doubled: 10,
            delay: 120,
        };
        Self {
            world,
            dice: Dice(seed * 104_729),
            seed,
        }
    }

    fn step(&mut self) {
        let one = self.dice.below(3) as usize;
        let other = (one + 1 + self.dice.below(2) as usize) % 3;
        match self.dice.below(15) {
            0 => self.world.server.is_alive = false,
            1 | 2 => self.world.server.is_alive = true,
            3 => self.world.server.restart(),
            4 => self.change_nat(one),
            5 => self.restart(one),
            6 => self.flip_link(one),
            7 => self.flip_relay(one),
            8 => self.meets_all(one),
            10 => self.world.server.has = [BOTH, ONLY_V4, ONLY_V6][one],
            9 => {
                let time = SECOND * self.dice.below(400) as u32;
                self.world.pass(time);
            }
            _ => {
                let time = Duration::from_millis(100 * self.dice.below(100));
                self.world.lost(one, other, time);
            }
        }
        self.world.pass(Duration::from_millis(100));
        self.no_stranger_was_sent_to();
    }

    fn change_nat(&mut self, client: usize) {
        let nat = match self.dice.below(2) {
            0 => Nat::Home,
            _ => Nat::Hard,
        };
        self.world.set_nat(client, nat);
        self.meets_all(client);
    }

    fn meets_all(&mut self, client: usize) {
        let others = [A, B, C].into_iter().filter(|other| *other != client);
        self.world.set_directs(client, &others.collect::<Vec<_>>());
    }

    /// A new process takes the place of the former one: it knows nothing but its configuration.
    fn restart(&mut self, client: usize) {
        self.world.hosts[client] = Host::new(client as u8 + 1);
        self.world.configure(client);
        self.meets_all(client);
        self.world.give_relay(client);
    }

    fn flip_link(&mut self, client: usize) {
        let now = self.world.now;
        let node = &mut self.world.hosts[client].node;
        let is_up = node.is_up();
        node.set_link(!is_up, now);
        self.world.collect(client);
    }

    fn flip_relay(&mut self, client: usize) {
        let now = self.world.now;
        match self.dice.below(2) {
            0 => self.world.hosts[client].node.set_relays(&[], now),
            _ => self.world.give_relay(client),
        }
        self.world.collect(client);
    }

    fn no_stranger_was_sent_to(&mut self) {
        let hub = self.world.hosts[HUB].address;
        for client in [A, B, C] {
            let known = |ip: IpAddr| {
                let others = (1..=3).filter(|n| usize::from(*n) != client + 1);
                let mut known = others.flat_map(addresses_of);
                known.any(|it| ip == it)
            };
            for to in self.world.sent[client].drain(..) {
                let is_known = to == hub || self.world.server.is_at(to) || known(to.ip());
                assert!(is_known, "history {}: {client} to {to}", self.seed);
            }
        }
        let relayed = std::mem::take(&mut self.world.server.relayed);
        for to in relayed {
            // An ordinary peer, which is relayed as long as it is silent.
            if to == hub {
                continue;
            }
            let is_client = (1..=3).flat_map(addresses_of).any(|it| it == to.ip());
            let is_known = is_client || self.world.server.is_at(to);
            assert!(is_known, "history {}: relay to {to}", self.seed);
        }
    }

    fn ends_well(&mut self) {
        self.world.weather = Weather::default();
        self.world.server.is_alive = true;
        self.world.server.has = BOTH;
        for client in [A, B, C] {
            let now = self.world.now;
            self.world.hosts[client].node.set_link(true, now);
            self.world.set_nat(client, Nat::Hard);
            self.meets_all(client);
            self.world.give_relay(client);
            // The hub, which never calls, learns where it is.
            self.world.send(client, HUB, b"hello");
        }
        for (one, other) in [(A, B), (B, C), (C, A)] {
            // Longer than the longest pause between two meetings.
            for _ in 0..300 {
                self.world.send(one, other, b"data");
                self.world.send(other, one, b"data");
                self.world.pass(2 * SECOND);
            }
            self.world.lost(one, other, 60 * SECOND);
            let seed = self.seed;
            assert_eq!(self.world.lost(one, other, SECOND), 0, "history {seed}");
            for (one, other) in [(one, other), (other, one)] {
                let path = self.world.status(one, other).path;
                path.unwrap_or_else(|why| panic!("history {seed}: {one} to {other}: {why:?}"));
            }
            self.no_stranger_was_sent_to();
        }
        self.world.pass(500 * SECOND);
        for client in [A, B, C] {
            let state = self.world.relay_state(client);
            assert_eq!(state, RelayState::Idle, "history {}: {client}", self.seed);
        }
    }
}

/// The addresses of the client with this number, from 1.
fn addresses_of(number: u8) -> [IpAddr; 3] {
    let v6 = v6_of(usize::from(number) - 1).ip();
    let [outer, host] = [[203, 0, 113, number], [192, 168, number, 2]];
    [outer.into(), host.into(), v6]
}
