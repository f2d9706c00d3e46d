//! STUN and TURN servers, whose names are looked up like those of peers.

use convoy_config::{Direct, Turn};
use convoy_proto::config::RelayTransport;

use super::*;

const SERVER: &str = "stun.example.org";
const TURN: &str = "turn.example.org";

#[test]
fn a_servers_name_is_looked_up_and_has_one_address_of_each_family() {
    let mut scene = scene(&["192.0.2.9:3478", "stun.example.org:3478"], true);
    assert_eq!(scene.servers(), ["192.0.2.9:3478"]);
    assert_eq!(scene.lookup(), Some(SERVER.to_owned()));
    assert!(!scene.endpoints.awaits_peers());
    assert!(!scene.endpoints.take_servers_change());
    scene.answer(Ok(&[
        "192.0.2.1",
        "2001:db8::1",
        "192.0.2.2",
        "2001:db8::2",
    ]));
    assert!(scene.endpoints.take_servers_change());
    assert!(!scene.endpoints.take_servers_change());
    let expected = ["192.0.2.9:3478", "[2001:db8::1]:3478", "192.0.2.1:3478"];
    assert_eq!(scene.servers(), expected);
    assert_eq!((scene.change(), scene.lookup()), (None, None));
}

#[test]
fn a_servers_name_that_is_not_found_is_a_problem_and_asked_for_again() {
    let mut scene = scene(&["stun.example.org:3478"], true);
    scene.lookup();
    scene.answer(Err("name not found"));
    assert!(!scene.endpoints.take_servers_change());
    let problems: Vec<_> = scene.endpoints.problems_of_servers().collect();
    assert_eq!(problems, ["name not found: stun.example.org"]);
    scene.now += SECOND;
    assert_eq!(scene.lookup(), Some(SERVER.to_owned()));
}

#[test]
fn a_servers_name_is_looked_up_again_in_another_network() {
    let mut scene = scene(&["stun.example.org:3478"], true);
    scene.lookup();
    scene.answer(Ok(&["192.0.2.1"]));
    scene.now += 60 * MINUTE;
    assert_eq!(scene.lookup(), None);
    scene.endpoints.handle_network_changed(scene.now);
    assert_eq!(scene.lookup(), Some(SERVER.to_owned()));
}

#[test]
fn a_turn_servers_name_is_looked_up_again_while_a_peer_does_not_answer() {
    let mut scene = with_turn("turn.example.org:3478");
    assert_eq!(scene.endpoints.followed(), [KEY]);
    scene.lookup();
    scene.answer_of(TURN, Ok(&["192.0.2.1"]));
    assert_eq!(scene.servers(), ["192.0.2.1:3478"]);
    scene.now += 60 * MINUTE;
    scene.answered();
    assert_eq!(scene.lookup(), None);
    let mut looked_up = 0;
    for _ in 0..120 {
        scene.unanswered();
        if let Some(name) = scene.lookup() {
            assert_eq!(name, TURN);
            scene.answer_of(TURN, Ok(&["192.0.2.5"]));
            looked_up += 1;
        }
    }
    assert!(scene.endpoints.take_servers_change());
    assert_eq!(scene.servers(), ["192.0.2.5:3478"]);
    assert!((6..=9).contains(&looked_up), "{looked_up} in ten minutes");
    assert_eq!(scene.change(), None);
    let by_address = with_turn("192.0.2.9:3478");
    assert_eq!(by_address.endpoints.followed(), [] as [PublicKey; 0]);
}

#[test]
fn of_many_peers_only_some_are_followed_for_a_turn_server() {
    let keys = (0..100).map(|n| PublicKey([n; 32]));
    let peers = keys.map(|key| peer(key, &["203.0.113.1:1"]));
    let mut peers: Vec<_> = peers.collect();
    peers.push(peer(PublicKey([200; 32]), &["vpn.example.org:1"]));
    let mut config = turn_config("turn.example.org:3478");
    config.peers = peers;
    let followed = Endpoints::new(&config).followed();
    assert_eq!(followed.len(), MOST_FOR_RELAYS + 1);
    assert!(followed.contains(&PublicKey([200; 32])));
}

#[test]
fn servers_are_forgotten_with_the_last_direct_peer() {
    let servers = ["stun.example.org:3478", "192.0.2.9:1"];
    let mut without = scene(&servers, false);
    assert_eq!(without.lookup(), None);
    assert_eq!(without.servers(), [] as [String; 0]);
    let mut scene = scene(&servers, true);
    scene.lookup();
    scene.answer(Ok(&["192.0.2.1"]));
    assert_eq!(scene.servers().len(), 2);
    scene
        .endpoints
        .replace(&config_of(&servers, false), scene.now);
    assert_eq!(scene.servers(), [] as [String; 0]);
    scene
        .endpoints
        .replace(&config_of(&servers, true), scene.now);
    assert_eq!(scene.lookup(), Some(SERVER.to_owned()));
}

#[test]
fn a_name_of_a_peer_and_a_server_is_looked_up_once() {
    let mut hub = hub();
    hub.endpoints = peer(KEY, &["stun.example.org:51820"]).endpoints;
    let mut config = config_of(&["stun.example.org:3478"], true);
    config.peers = vec![hub];
    let mut scene = Scene {
        endpoints: Endpoints::new(&config),
        now: Instant::now(),
    };
    assert!(scene.lookup().is_some());
    assert!(scene.endpoints.awaits_peers());
    assert_eq!(scene.lookup(), None);
    scene.answer(Ok(&["192.0.2.1"]));
    assert_eq!(scene.change(), Some("192.0.2.1:51820".to_owned()));
    assert_eq!(scene.servers(), ["192.0.2.1:3478"]);
}

impl Scene {
    fn servers(&self) -> Vec<String> {
        let servers = self.endpoints.servers();
        servers.iter().map(SocketAddr::to_string).collect()
    }

    fn answer(&mut self, answer: Result<&[&str], &str>) {
        self.answer_of(SERVER, answer);
    }

    fn answer_of(&mut self, name: &str, answer: Result<&[&str], &str>) {
        let answer = answer.map(|found| found.iter().map(|it| it.parse().unwrap()).collect());
        let answer = answer.map_err(str::to_owned);
        self.endpoints.handle_answer(name, answer, self.now);
    }
}

fn scene(servers: &[&str], has_direct: bool) -> Scene {
    Scene {
        endpoints: Endpoints::new(&config_of(servers, has_direct)),
        now: Instant::now(),
    }
}

/// A peer with one address, and a TURN server.
fn with_turn(server: &str) -> Scene {
    Scene {
        endpoints: Endpoints::new(&turn_config(server)),
        now: Instant::now(),
    }
}

fn turn_config(server: &str) -> Config {
    let mut config = config(vec![peer(KEY, &["203.0.113.1:1"])]);
    let turn = Turn {
        transport: RelayTransport::Udp,
        server: endpoint(server),
        user: "alice".to_owned(),
        ca_file: None,
        authorities: None,
        password_file: Located::nowhere("password".into()),
        password: None,
    };
    config.interface.turns = vec![Located::nowhere(turn)];
    config
}

fn config_of(servers: &[&str], has_direct: bool) -> Config {
    let peer = match has_direct {
        true => hub(),
        false => peer(KEY, &[]),
    };
    let mut config = config(vec![peer]);
    let servers = servers.iter().map(|it| Located::nowhere(endpoint(it)));
    config.interface.stun = servers.collect();
    config
}

fn hub() -> Peer {
    let direct = Direct {
        public_key: Located::nowhere(OTHER),
        allowed_ips: vec![Located::nowhere("10.0.0.3/32".parse().unwrap())],
        preshared_key: None,
        preshared_key_file: None,
    };
    Peer {
        directs: vec![Located::nowhere(direct)],
        ..peer(KEY, &[])
    }
}
