//! When names are looked up, and what follows from the answers.

use super::*;

#[test]
fn a_name_is_looked_up_once_and_its_first_address_is_set() {
    let mut scene = Scene::of(&["vpn.example.org:51820"]);
    assert_eq!(scene.endpoints.followed(), [KEY]);
    assert_eq!(scene.endpoints.address_of(&KEY), None);
    assert_eq!(scene.lookup(), Some(NAME.to_owned()));
    assert_eq!(scene.lookup(), None);
    scene.found(&["2001:db8::1", "192.0.2.1"]);
    assert_eq!(scene.change(), Some("[2001:db8::1]:51820".to_owned()));
    assert_eq!(scene.change(), None);
    scene.now += 60 * MINUTE;
    assert_eq!(scene.lookup(), None);
    assert_eq!(scene.endpoints.poll_timeout(), None);
}

#[test]
fn peers_at_one_name_share_its_look_up() {
    let peers = [
        peer(KEY, &["vpn.example.org:1"]),
        peer(OTHER, &["vpn.example.org:2"]),
    ];
    let mut scene = Scene::with(peers.into());
    assert!(scene.lookup().is_some());
    assert_eq!(scene.lookup(), None);
    scene.found(&["192.0.2.1"]);
    let set: Vec<_> = std::iter::from_fn(|| scene.endpoints.poll_change()).collect();
    let expected = [(KEY, "192.0.2.1:1"), (OTHER, "192.0.2.1:2")];
    assert_eq!(
        set,
        expected.map(|(key, address)| (key, address.parse().unwrap()))
    );
    assert_eq!(scene.endpoints.all().len(), 1);
}

#[test]
fn a_name_that_is_not_found_is_asked_for_with_growing_pauses_and_shown() {
    let mut scene = Scene::of(&["vpn.example.org:51820"]);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert!(scene.lookup().is_some());
        scene.failed("name not found");
        let shown = scene.endpoints.problem_of(&KEY);
        assert_eq!(shown, Some("name not found: vpn.example.org"));
        assert_eq!(scene.lookup(), None);
        let next = scene.endpoints.poll_timeout().unwrap();
        pauses.push((next - scene.now).as_secs());
        scene.now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    assert!(scene.lookup().is_some());
    scene.found(&["192.0.2.1"]);
    assert_eq!(scene.endpoints.problem_of(&KEY), None);
    assert_eq!(scene.change(), Some("192.0.2.1:51820".to_owned()));
}

#[test]
fn an_empty_answer_is_a_problem() {
    let mut scene = Scene::of(&["vpn.example.org:51820"]);
    scene.lookup();
    scene.found(&[]);
    let shown = scene.endpoints.problem_of(&KEY);
    assert_eq!(shown, Some("no address: vpn.example.org"));
}

#[test]
fn a_less_preferred_address_waits_for_the_answer_to_a_name() {
    let mut scene = Scene::of(&["vpn.example.org:51820", "192.0.2.9:51820"]);
    assert_eq!(scene.endpoints.address_of(&KEY), None);
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    assert_eq!(scene.change(), Some("192.0.2.1:51820".to_owned()));

    let mut scene = Scene::of(&["vpn.example.org:51820", "192.0.2.9:51820"]);
    scene.lookup();
    scene.failed("the name servers do not answer");
    assert_eq!(scene.change(), Some("192.0.2.9:51820".to_owned()));
    scene.now += SECOND;
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    assert_eq!(scene.change(), Some("192.0.2.1:51820".to_owned()));
}

#[test]
fn unanswered_handshakes_look_the_name_up_again_with_growing_pauses() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.change();
    scene.now += 60 * MINUTE;
    let mut asked = 0;
    for _ in 0..1000 {
        scene.unanswered();
        if scene.lookup().is_some() {
            asked += 1;
            scene.found(&["192.0.2.1"]);
        }
    }
    // 5,000 s, of which the first 500 or so have shorter pauses.
    assert!((20..30).contains(&asked), "{asked}");
    scene.answered();
    scene.now += SECOND;
    scene.unanswered();
    assert!(scene.lookup().is_some(), "without a pause after success");
}

#[test]
fn a_look_up_in_the_former_network_does_not_hold_up_the_next() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    assert!(scene.lookup().is_some());
    scene.endpoints.handle_network_changed(scene.now);
    assert!(scene.lookup().is_some(), "both at once");
    scene.endpoints.handle_network_changed(scene.now);
    assert_eq!(scene.lookup(), None, "but no third");
    assert_eq!(scene.endpoints.poll_timeout(), None);
    scene.failed("the name servers do not answer");
    assert_eq!(scene.endpoints.problem_of(&KEY), None);
    assert!(scene.lookup().is_some());
    scene.found(&["192.0.2.1"]);
    scene.failed("the name servers do not answer");
    assert_eq!(scene.change(), Some("192.0.2.1:1".to_owned()));
}

#[test]
fn a_new_configuration_looks_up_again_what_was_not_found() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.failed("name not found");
    let same = config(vec![peer(KEY, &["vpn.example.org:1"])]);
    scene.endpoints.replace(&same, scene.now);
    assert!(scene.lookup().is_some());
    let without = config(Vec::new());
    scene.endpoints.replace(&without, scene.now);
    scene.found(&["192.0.2.1"]);
    assert_eq!(scene.change(), None);
    assert!(scene.endpoints.names_are_forgotten());
}

#[test]
fn many_names_are_looked_up_a_few_at_a_time() {
    let keys = (1..=100).map(|n| PublicKey([n; 32]));
    let peers = keys.map(|key| peer(key, &[&format!("peer{}.example.org:1", key.0[0])]));
    let mut scene = Scene::with(peers.collect());
    let mut looked_up = 0;
    loop {
        let names: Vec<_> = std::iter::from_fn(|| scene.lookup()).collect();
        assert!(names.len() <= 16, "{}", names.len());
        if names.is_empty() {
            break;
        }
        looked_up += names.len();
        for name in names {
            let answer = Err("name not found".to_owned());
            scene.endpoints.handle_answer(&name, answer, scene.now);
        }
    }
    assert_eq!(looked_up, 100);
}

/// The old address may answer sooner than the name server.
#[test]
fn in_another_network_an_address_that_the_name_no_longer_has_is_left_even_if_it_answers() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.found(&["192.0.2.1", "192.0.2.2"]);
    scene.change();
    for (found, expected) in [
        (&["192.0.2.2", "192.0.2.1"][..], None),
        (&["192.0.2.3"][..], Some("192.0.2.3:1".to_owned())),
    ] {
        scene.endpoints.handle_network_changed(scene.now);
        scene.change();
        scene.endpoints.poll_handshake();
        scene.lookup();
        scene.answered();
        scene.found(found);
        assert_eq!(scene.change(), expected);
        let shakes_hands = scene.endpoints.poll_handshake().is_some();
        assert_eq!(shakes_hands, expected.is_some());
    }
}

#[test]
fn an_address_that_the_name_no_longer_has_is_left_only_if_it_does_not_answer() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    scene.change();
    scene.now += MINUTE;
    scene.unanswered();
    scene.lookup();
    scene.answered();
    scene.found(&["192.0.2.2"]);
    assert_eq!(scene.change(), None);
    scene.now += MINUTE;
    scene.unanswered();
    scene.lookup();
    scene.found(&["192.0.2.2"]);
    assert_eq!(scene.change(), Some("192.0.2.2:1".to_owned()));
}

impl Endpoints {
    fn names_are_forgotten(&self) -> bool {
        self.lookups.users_of(NAME).is_empty() && self.lookups.addresses_of(NAME).is_none()
    }
}
