use std::{sync::Arc, time::Duration};

use convoy_config::{Interface, Located, Peer};

use super::*;

mod memory;
mod names;
mod servers;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const KEY: PublicKey = PublicKey([1; 32]);
const OTHER: PublicKey = PublicKey([2; 32]);
const NAME: &str = "vpn.example.org";

/// The endpoints of one or two peers, and a clock.
struct Scene {
    endpoints: Endpoints,
    now: Instant,
}

#[test]
fn an_address_needs_no_look_up_and_is_no_change() {
    let mut scene = Scene::of(&["192.0.2.1:51820"]);
    assert_eq!(scene.address(), "192.0.2.1:51820");
    assert_eq!(scene.lookup(), None);
    assert_eq!(scene.change(), None);
    assert_eq!(scene.endpoints.followed(), []);
    assert_eq!(scene.endpoints.poll_timeout(), None);
    assert_eq!(
        scene.endpoints.all(),
        ["192.0.2.1".parse::<IpAddr>().unwrap()]
    );
}

#[test]
fn three_unanswered_initiations_lead_to_the_next_address_and_round() {
    let mut scene = Scene::of(&["192.0.2.1:1", "192.0.2.2:2", "[2001:db8::3]:3"]);
    for expected in ["192.0.2.2:2", "[2001:db8::3]:3", "192.0.2.1:1"] {
        for _ in 0..2 {
            scene.unanswered();
            assert_eq!(scene.change(), None);
        }
        scene.unanswered();
        assert_eq!(scene.change(), Some(expected.to_owned()));
        assert_eq!(scene.address(), expected);
    }
    assert_eq!(scene.endpoints.poll_handshake(), None, "one is in progress");
}

#[test]
fn an_answer_in_between_and_a_long_time_in_between_start_the_count_again() {
    let mut scene = Scene::of(&["192.0.2.1:1", "192.0.2.2:2"]);
    for pause in [Duration::ZERO, 10 * MINUTE] {
        scene.unanswered();
        scene.unanswered();
        match pause {
            Duration::ZERO => scene.answered(),
            pause => scene.now += pause,
        }
        scene.unanswered();
        scene.unanswered();
        assert_eq!(scene.change(), None);
        scene.answered();
    }
}

#[test]
fn a_peer_with_one_address_stays_there() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.change();
    (0..10).for_each(|_| scene.unanswered());
    assert_eq!(scene.change(), None);
}

#[test]
fn a_changed_network_leads_back_to_the_first_address_and_to_a_handshake() {
    let mut scene = Scene::of(&["vpn.example.org:1", "192.0.2.9:1"]);
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.change();
    (0..3).for_each(|_| scene.unanswered());
    assert_eq!(scene.change(), Some("192.0.2.9:1".to_owned()));
    // Consumes the look-up that the failure caused.
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.answered();
    scene.endpoints.handle_network_changed(scene.now);
    assert_eq!(scene.change(), Some("192.0.2.1:1".to_owned()));
    assert_eq!(scene.endpoints.poll_handshake(), Some(KEY));
    assert_eq!(scene.endpoints.poll_handshake(), None);
    assert!(scene.lookup().is_some());
    scene.found(&["192.0.2.5"]);
    assert_eq!(scene.change(), Some("192.0.2.5:1".to_owned()));
}

/// It may have roamed there.
#[test]
fn a_changed_network_sets_the_same_address_again_only_if_there_may_be_others() {
    let peers = [
        peer(KEY, &["vpn.example.org:1"]),
        peer(OTHER, &["192.0.2.2:2"]),
    ];
    let mut scene = Scene::with(peers.into());
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.change();
    scene.endpoints.handle_network_changed(scene.now);
    assert_eq!(scene.change(), Some("192.0.2.1:1".to_owned()));
    assert_eq!(scene.change(), None);
    let shaken: Vec<_> = std::iter::from_fn(|| scene.endpoints.poll_handshake()).collect();
    assert_eq!(shaken, [KEY, OTHER]);
}

#[test]
fn the_preferred_address_is_tried_at_a_later_handshake_and_left_at_its_first_silence() {
    let mut scene = Scene::of(&["192.0.2.1:1", "192.0.2.2:2"]);
    (0..3).for_each(|_| scene.unanswered());
    assert_eq!(scene.change(), Some("192.0.2.2:2".to_owned()));
    scene.answered();
    assert_eq!(scene.change(), None);
    let mut trials = Vec::new();
    for minute in (2..=600).step_by(2) {
        scene.now += 2 * MINUTE;
        scene.answered();
        let Some(change) = scene.change() else {
            continue;
        };
        trials.push(minute);
        assert_eq!(change, "192.0.2.1:1");
        assert_eq!(scene.endpoints.poll_handshake(), Some(KEY));
        scene.unanswered();
        assert_eq!(scene.change(), Some("192.0.2.2:2".to_owned()));
        scene.answered();
    }
    let pauses: Vec<_> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(trials[0], 2);
    assert_eq!(pauses[..6], [4, 8, 16, 32, 60, 60]);
}

#[test]
fn the_preferred_address_is_kept_once_it_answers() {
    let mut scene = Scene::of(&["192.0.2.1:1", "192.0.2.2:2"]);
    (0..3).for_each(|_| scene.unanswered());
    scene.change();
    scene.answered();
    scene.now += 2 * MINUTE;
    scene.answered();
    assert_eq!(scene.change(), Some("192.0.2.1:1".to_owned()));
    scene.answered();
    (0..20).for_each(|_| {
        scene.now += 2 * MINUTE;
        scene.answered();
    });
    assert_eq!(scene.change(), None);
    scene.unanswered();
    assert_eq!(scene.change(), None, "no trial any more");
}

#[test]
fn a_new_configuration_keeps_what_is_known_of_unchanged_endpoints() {
    let mut scene = Scene::of(&["vpn.example.org:1", "192.0.2.9:1"]);
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.change();
    (0..3).for_each(|_| scene.unanswered());
    scene.change();
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    let same = peer(KEY, &["vpn.example.org:1", "192.0.2.9:1"]);
    let new = peer(OTHER, &["vpn.example.org:7"]);
    scene.endpoints.replace(&config(vec![same, new]), scene.now);
    assert_eq!(scene.address(), "192.0.2.9:1");
    let of_other = scene.endpoints.address_of(&OTHER).unwrap();
    assert_eq!(of_other.to_string(), "192.0.2.1:7");
    assert_eq!((scene.change(), scene.lookup()), (None, None));

    let other_order = peer(KEY, &["192.0.2.9:1", "new.example.org:1"]);
    scene
        .endpoints
        .replace(&config(vec![other_order]), scene.now);
    assert_eq!(scene.address(), "192.0.2.9:1");
    assert_eq!(scene.endpoints.address_of(&OTHER), None);
    assert_eq!(scene.lookup(), Some("new.example.org".to_owned()));
    assert_eq!(scene.change(), None);
}

#[test]
fn a_zone_is_the_name_or_the_number_of_an_interface() {
    let zones = |zone: &str| (zone == "eth0").then_some(7);
    let config = config(vec![
        peer(KEY, &["[fe80::1%eth0]:1"]),
        peer(OTHER, &["[fe80::1%gone]:1"]),
    ]);
    let endpoints = Endpoints::with_zones(&config, zones);
    let address = SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 0, 7);
    assert_eq!(endpoints.address_of(&KEY), Some(address.into()));
    assert_eq!(endpoints.address_of(&OTHER), None);
    assert_eq!(index_of("12"), Some(12));
    assert_eq!(index_of("lo"), Some(1));
    assert_eq!(index_of("no such interface"), None);
}

#[test]
fn events_of_unknown_peers_and_answers_for_unknown_names_are_ignored() {
    let mut scene = Scene::of(&["192.0.2.1:1"]);
    scene.endpoints.handle_handshake(&OTHER, false, scene.now);
    let answer = Ok(vec!["192.0.2.7".parse().unwrap()]);
    scene
        .endpoints
        .handle_answer("other.example.org", answer, scene.now);
    assert_eq!((scene.change(), scene.lookup()), (None, None));
}

impl Scene {
    fn of(endpoints: &[&str]) -> Self {
        Self::with(vec![peer(KEY, endpoints)])
    }

    fn with(peers: Vec<Peer>) -> Self {
        Self {
            endpoints: Endpoints::new(&config(peers)),
            now: Instant::now(),
        }
    }

    fn address(&self) -> String {
        self.endpoints.address_of(&KEY).unwrap().to_string()
    }

    fn change(&mut self) -> Option<String> {
        let (_, address) = self.endpoints.poll_change()?;
        Some(address.to_string())
    }

    fn lookup(&mut self) -> Option<String> {
        self.endpoints.poll_lookup(self.now)
    }

    fn found(&mut self, addresses: &[&str]) {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        self.endpoints.handle_answer(NAME, Ok(addresses), self.now);
    }

    fn failed(&mut self, reason: &str) {
        let answer = Err(reason.to_owned());
        self.endpoints.handle_answer(NAME, answer, self.now);
    }

    /// Five seconds pass without an answer.
    fn unanswered(&mut self) {
        self.now += 5 * SECOND;
        self.endpoints.handle_handshake(&KEY, false, self.now);
    }

    fn answered(&mut self) {
        self.endpoints.handle_handshake(&KEY, true, self.now);
    }
}

fn config(peers: Vec<Peer>) -> Config {
    Config {
        name: "wg0".parse().unwrap(),
        interface: Interface::default(),
        peers,
        hooks_trusted: Ok(()),
        files: Arc::default(),
        source: None,
        via: None,
    }
}

fn peer(key: PublicKey, endpoints: &[&str]) -> Peer {
    let endpoints = endpoints.iter().map(|it| Located::nowhere(endpoint(it)));
    Peer {
        endpoints: endpoints.collect(),
        ..Peer::new(Located::nowhere(key))
    }
}

fn endpoint(text: &str) -> Endpoint {
    let (host, port) = text.rsplit_once(':').unwrap();
    let host = host.trim_matches(['[', ']']);
    let host = match (host.parse(), host.split_once('%')) {
        (Ok(address), _) => Host::Ip(address),
        (_, Some((address, zone))) => Host::Zoned(address.parse().unwrap(), zone.to_owned()),
        _ => Host::Name(host.to_owned()),
    };
    let port = port.parse().unwrap();
    Endpoint { host, port }
}
