//! Random histories of three clients and their hub on a bad network. In the end they talk, and no prefix has moved.

use std::time::Duration;

use convoy_proto::config::{DeviceUpdate, PeerUpdate};

use crate::{
    common::{
        Host, SECOND, allow, payload,
        weather::{Dice, Weather},
    },
    world::{A, B, C, HUB, World},
};

/// Histories, and steps of each.
const HISTORIES: u64 = 40;
const STEPS: usize = 60;

#[test]
fn whatever_happens_the_peers_talk_in_the_end_and_no_prefix_has_moved() {
    for seed in 1..=HISTORIES {
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.step();
            history.nobody_got_what_is_anothers();
        }
        history.ends_well();
    }
}

struct History {
    world: World,
    dice: Dice,
    seed: u64,
    /// Bumped for each address that a client has had.
    moves: u8,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut world = World::new(&[A, B, C]);
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
            moves: 0,
        }
    }

    fn step(&mut self) {
        let [one, other] = self.two();
        match self.dice.below(16) {
            0 => self.world.cut(one, other),
            1 | 2 => self.world.cut.clear(),
            3 => self.move_client(one),
            4 => self.restart(one),
            5 => self.restart(HUB),
            6 => self.world.set_directs(one, &[other], None),
            7 => self.meets_all(one),
            8 => self.flip_link(one),
            9 => {
                let time = SECOND * self.dice.below(400) as u32;
                self.world.pass(time);
            }
            10 => self.forge(one, other),
            14 | 15 => self.world.is_hub_hostile ^= true,
            _ => {
                let time = Duration::from_millis(100 * self.dice.below(60));
                self.world.talk(one, other, time);
            }
        }
        self.world.pass(Duration::from_millis(100));
    }

    /// Two different clients.
    fn two(&mut self) -> [usize; 2] {
        let one = self.dice.below(3) as usize;
        let other = (one + 1 + self.dice.below(2) as usize) % 3;
        [one, other]
    }

    fn meets_all(&mut self, client: usize) {
        let others = [A, B, C].into_iter().filter(|other| *other != client);
        self.world
            .set_directs(client, &others.collect::<Vec<_>>(), None);
    }

    fn move_client(&mut self, client: usize) {
        self.moves += 1;
        self.world.hosts[client].address = ([198, 51, 100, self.moves], 51820).into();
        self.meets_all(client);
    }

    /// A new process takes the place of the former one: it knows nothing but its configuration.
    fn restart(&mut self, host: usize) {
        let mut fresh = Host::new([1, 2, 3, 9][host]);
        fresh.address = self.world.hosts[host].address;
        let all: Vec<_> = self.world.hosts.iter().map(Host::as_peer).collect();
        let peers = match host {
            HUB => all[..HUB].to_vec(),
            _ => vec![PeerUpdate {
                endpoint: Some(self.world.hosts[HUB].address),
                allowed_ips: vec![allow([10, 0, 0, 0].into(), 24)],
                persistent_keepalive: Some(25),
                ..all[HUB].clone()
            }],
        };
        let update = DeviceUpdate {
            peers,
            ..DeviceUpdate::default()
        };
        let now = self.world.now;
        fresh.update(update, now);
        fresh.node.set_port(51820, now);
        self.world.hosts[host] = fresh;
        if host != HUB {
            self.meets_all(host);
        }
    }

    fn flip_link(&mut self, client: usize) {
        let now = self.world.now;
        let node = &mut self.world.hosts[client].node;
        let is_up = node.is_up();
        node.set_link(!is_up, now);
    }

    /// A client sends with the address of another one.
    fn forge(&mut self, client: usize, as_other: usize) {
        let third = 3 - client - as_other;
        let source = self.world.hosts[as_other].inner;
        let destination = self.world.hosts[third].inner;
        self.world.send_as(source, client, destination, b"forged");
    }

    fn nobody_got_what_is_anothers(&mut self) {
        for host in &mut self.world.hosts {
            for packet in host.delivered.drain(..) {
                assert_ne!(payload(&packet), b"forged", "history {}", self.seed);
                let std::net::IpAddr::V4(own) = host.inner else {
                    unreachable!()
                };
                assert_eq!(packet[16..20], own.octets(), "history {}", self.seed);
            }
        }
    }

    fn ends_well(&mut self) {
        self.world.cut.clear();
        self.world.weather = Weather::default();
        self.world.is_hub_hostile = false;
        for client in [A, B, C] {
            let now = self.world.now;
            self.world.hosts[client].node.set_link(true, now);
            self.meets_all(client);
            // The hub, which never calls, learns where it is.
            self.world.send(client, HUB, b"hello");
        }
        for (one, other) in [(A, B), (B, C), (C, A)] {
            self.world.talk(one, other, 700 * SECOND);
            let seed = self.seed;
            assert_eq!(self.world.talk(one, other, SECOND), 10, "history {seed}");
            let path = self.world.status_of(one, other).path;
            let remote = path
                .unwrap_or_else(|why| panic!("history {seed}: {why:?}"))
                .remote;
            assert_eq!(remote, self.world.hosts[other].address, "history {seed}");
            self.nobody_got_what_is_anothers();
        }
    }
}
