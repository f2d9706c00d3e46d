//! Tests of the memory of addresses and answers.

use super::*;

const TWO: [&str; 2] = ["192.0.2.1:1", "192.0.2.2:2"];

#[test]
fn a_peer_with_other_endpoints_begins_with_the_first() {
    let mut scene = Scene::of(&TWO);
    scene.moves_to("192.0.2.2:2");
    let others = peer(KEY, &["192.0.2.3:3", "192.0.2.2:2"]);
    scene.endpoints.replace(&config(vec![others]), scene.now);
    assert_eq!(scene.address(), "192.0.2.3:3");
}

#[test]
fn a_peer_that_is_removed_is_neither_changed_nor_shaken_hands_with() {
    let mut scene = Scene::of(&TWO);
    scene.endpoints.handle_network_changed(scene.now);
    scene.endpoints.replace(&config(Vec::new()), scene.now);
    assert_eq!(scene.change(), None);
    assert_eq!(scene.endpoints.poll_handshake(), None);
    assert_eq!(scene.endpoints.all(), [] as [IpAddr; 0]);
}

#[test]
fn after_a_trial_that_was_answered_the_next_comes_soon_again() {
    let mut scene = Scene::of(&TWO);
    scene.moves_to("192.0.2.2:2");
    scene.answered();
    for _ in 0..3 {
        scene.tries_the_first_after(60 * MINUTE);
        scene.unanswered();
        assert_eq!(scene.change(), Some("192.0.2.2:2".to_owned()));
        scene.answered();
    }
    scene.tries_the_first_after(60 * MINUTE);
    scene.answered();
    scene.moves_to("192.0.2.2:2");
    scene.answered();
    scene.tries_the_first_after(2 * MINUTE);
}

#[test]
fn the_pause_before_a_trial_begins_anew_at_each_address() {
    let mut scene = Scene::of(&["192.0.2.1:1", "192.0.2.2:2", "192.0.2.3:3"]);
    scene.moves_to("192.0.2.2:2");
    scene.answered();
    scene.moves_to("192.0.2.3:3");
    scene.now += 2 * MINUTE;
    scene.answered();
    assert_eq!(scene.change(), None);
    scene.tries_the_first_after(2 * MINUTE);
}

#[test]
fn another_network_makes_a_fresh_start() {
    let mut scene = Scene::of(&TWO);
    scene.unanswered();
    scene.unanswered();
    scene.endpoints.handle_network_changed(scene.now);
    scene.change();
    scene.unanswered();
    scene.unanswered();
    assert_eq!(scene.change(), None, "two of three");
    scene.unanswered();
    assert_eq!(scene.change(), Some("192.0.2.2:2".to_owned()));
    // A trial in vain, whose pause belongs to this network.
    scene.answered();
    scene.tries_the_first_after(2 * MINUTE);
    scene.unanswered();
    scene.endpoints.handle_network_changed(scene.now);
    scene.change();
    scene.moves_to("192.0.2.2:2");
    scene.answered();
    scene.tries_the_first_after(2 * MINUTE);
}

#[test]
fn an_address_that_is_listed_twice_is_tried_once() {
    let mut scene = Scene::of(&["192.0.2.1:1", "192.0.2.1:1", "192.0.2.2:2"]);
    scene.moves_to("192.0.2.2:2");
    scene.moves_to("192.0.2.1:1");
}

#[test]
fn after_an_address_that_the_name_no_longer_has_comes_the_first() {
    let mut scene = named(&["192.0.2.1"]);
    scene.now += MINUTE;
    scene.unanswered();
    scene.lookup();
    scene.answered();
    scene.found(&["192.0.2.2", "192.0.2.3"]);
    assert_eq!(scene.address(), "192.0.2.1:1");
    scene.moves_to("192.0.2.2:1");
}

#[test]
fn of_the_addresses_of_a_name_the_first_sixteen_are_tried() {
    let all: Vec<_> = (1..=40).map(|n| format!("192.0.2.{n}")).collect();
    let mut scene = named(&all.iter().map(String::as_str).collect::<Vec<_>>());
    for n in (2..=16).chain([1]) {
        scene.moves_to(&format!("192.0.2.{n}:1"));
    }
}

#[test]
fn a_look_up_in_vain_leaves_the_addresses_of_the_last() {
    let mut scene = named(&["192.0.2.1", "192.0.2.2"]);
    scene.unanswered();
    assert!(scene.lookup().is_some());
    scene.failed("the name servers do not answer");
    assert!(scene.endpoints.problem_of(&KEY).is_some());
    assert_eq!(scene.address(), "192.0.2.1:1");
    scene.unanswered();
    scene.unanswered();
    assert_eq!(scene.change(), Some("192.0.2.2:1".to_owned()));
}

#[test]
fn a_peer_that_answers_again_needs_no_look_up_unless_its_name_was_never_found() {
    let mut scene = named(&["192.0.2.1"]);
    scene.unanswered();
    scene.answered();
    scene.now += 60 * MINUTE;
    assert_eq!(
        (scene.lookup(), scene.endpoints.poll_timeout()),
        (None, None)
    );

    let mut scene = Scene::of(&["vpn.example.org:1", "192.0.2.9:1"]);
    scene.lookup();
    scene.failed("name not found");
    scene.answered();
    scene.now += MINUTE;
    assert!(scene.lookup().is_some());
}

#[test]
fn a_look_up_that_runs_is_not_begun_again_for_another_silence() {
    let mut scene = named(&["192.0.2.1"]);
    scene.unanswered();
    assert!(scene.lookup().is_some());
    scene.unanswered();
    scene.now += MINUTE;
    assert_eq!(
        (scene.lookup(), scene.endpoints.poll_timeout()),
        (None, None)
    );
}

#[test]
fn a_failure_in_the_former_network_does_not_put_off_the_next_look_up() {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.endpoints.handle_network_changed(scene.now);
    scene.failed("the name servers do not answer");
    assert!(scene.lookup().is_some());
}

#[test]
fn the_problem_of_any_of_a_peers_names_is_told() {
    let mut scene = Scene::of(&["vpn.example.org:1", "b.example.org:1"]);
    scene.lookup();
    scene.lookup();
    scene.found(&["192.0.2.1"]);
    let answer = Err("name not found".to_owned());
    scene
        .endpoints
        .handle_answer("b.example.org", answer, scene.now);
    let problem = scene.endpoints.problem_of(&KEY);
    assert_eq!(problem, Some("name not found: b.example.org"));
    assert_eq!(scene.endpoints.problem_of(&OTHER), None);
}

/// A peer at the first of these addresses of a name.
fn named(addresses: &[&str]) -> Scene {
    let mut scene = Scene::of(&["vpn.example.org:1"]);
    scene.lookup();
    scene.found(addresses);
    scene.change();
    scene
}

impl Scene {
    /// At a handshake by then, the first address is tried again.
    fn tries_the_first_after(&mut self, time: Duration) {
        self.now += time;
        self.answered();
        assert_eq!(self.change(), Some("192.0.2.1:1".to_owned()));
    }

    /// The address in use is silent until another one is.
    fn moves_to(&mut self, address: &str) {
        (0..3).for_each(|_| self.unanswered());
        assert_eq!(self.change(), Some(address.to_owned()));
    }
}
