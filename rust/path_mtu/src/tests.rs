use std::fs;

use super::*;

pub(super) const KEY: PublicKey = PublicKey([1; 32]);
pub(super) const OTHER: PublicKey = PublicKey([2; 32]);
const ENDPOINT: &str = "Endpoint = 192.0.2.1:1\n";
const ELSEWHERE: &str = "Endpoint = 192.0.2.2:1\n";
const TARGET: [u8; 4] = [10, 8, 0, 1];

#[test]
fn each_path_is_probed_once_after_a_handshake() {
    let config = config("", &[ENDPOINT, ENDPOINT, ""]);
    let mut paths = PathMtu::new(&config);
    assert!(paths.take_change());
    assert_eq!(paths.followed().collect::<Vec<_>>(), [KEY, OTHER]);
    assert!(paths.ready.is_empty());
    paths.handshake(&KEY);
    assert!(paths.take_change());
    paths.handshake(&KEY);
    assert!(!paths.take_change(), "it is no longer followed");
    assert_eq!(Vec::from_iter(&paths.ready), [&KEY]);
    assert_eq!(paths.followed().collect::<Vec<_>>(), [OTHER]);
}

#[test]
fn the_narrowest_path_limits_the_mtu() {
    let mut paths = PathMtu::new(&config("", &[ENDPOINT, ENDPOINT]));
    assert_eq!(paths.limit(), None);
    assert!(paths.note(KEY, narrow(1_376)).is_some());
    assert!(paths.note(OTHER, narrow(1_328)).is_some());
    assert_eq!(paths.limit(), Some(1_328));
    let warnings: Vec<_> = paths.warnings(1_328).collect();
    assert_eq!(
        warnings[0],
        "packets larger than 1376 bytes do not reach 10.8.0.1: the MTU is 1328 now"
    );
    assert_eq!(warnings.len(), 2);
}

#[test]
fn a_limit_stays_when_packets_fit_it_and_when_nothing_better_is_found() {
    let mut paths = PathMtu::new(&config("", &[ENDPOINT]));
    paths.note(KEY, narrow(1_328));
    let target = TARGET.into();
    for outcome in [
        Outcome::Fits { target },
        Outcome::Unknown,
        Outcome::TooNarrow { target },
    ] {
        paths.note(KEY, outcome);
        assert_eq!(paths.limit(), Some(1_328));
    }
    paths.moved(KEY);
    assert_eq!(paths.limit(), Some(1_328));
}

#[test]
fn a_path_below_the_smallest_mtu_is_a_warning_without_a_limit_until_packets_fit() {
    let mut paths = PathMtu::new(&config("", &[ENDPOINT]));
    let target = TARGET.into();
    assert!(paths.note(KEY, Outcome::TooNarrow { target }).is_some());
    assert_eq!(paths.limit(), None);
    let warning = paths.warnings(1_420).next().unwrap();
    assert!(
        warning.contains("10.8.0.1") && warning.contains("stays 1420"),
        "{warning}"
    );
    paths.note(KEY, Outcome::Fits { target });
    assert_eq!(paths.warnings(1_420).next(), None);
}

#[test]
fn a_limit_that_could_not_be_set_is_told() {
    let mut paths = PathMtu::new(&config("", &[ENDPOINT]));
    paths.note(KEY, narrow(1_328));
    let warning = paths.warnings(1_420).next().unwrap();
    assert!(warning.contains("1328 bytes"), "{warning}");
    assert!(warning.contains("the MTU is still 1420"), "{warning}");
}

#[test]
fn another_supervisor_keeps_what_was_found_of_peers_with_the_same_endpoints() {
    let former = config("", &[ENDPOINT, ENDPOINT]);
    let mut paths = PathMtu::new(&former);
    paths.note(KEY, narrow(1_328));
    paths.note(OTHER, narrow(1_300));
    let noted = serde_json::to_string(&paths.noted(&former)).unwrap();
    let noted: Vec<NotedPath> = serde_json::from_str(&noted).unwrap();

    let mut paths = PathMtu::new(&former);
    paths.restore(&former, &noted);
    assert_eq!(paths.limit(), Some(1_300));
    assert_eq!(paths.noted(&former), noted);
    let moved = config("", &[ENDPOINT, ELSEWHERE]);
    let mut paths = PathMtu::new(&moved);
    paths.restore(&moved, &noted);
    assert_eq!(paths.limit(), Some(1_328));
    assert!(paths.network_changed(&moved));
    assert_eq!(paths.noted(&moved), []);
}

#[test]
fn what_fits_directly_is_four_bytes_less_by_a_relay_and_does_not_matter_to_a_stream() {
    let mut paths = PathMtu::new(&config("", &[ENDPOINT, ENDPOINT]));
    paths.note(KEY, narrow(1_328));
    paths.note(OTHER, narrow(1_376));
    assert!(!paths.took_way(KEY, Way::Direct), "nothing is new");
    assert!(paths.took_way(KEY, Way::Relay));
    assert_eq!(paths.limit(), Some(1_324));
    assert!(paths.took_way(KEY, Way::Stream));
    assert_eq!(paths.limit(), Some(1_376));
    assert!(paths.took_way(KEY, Way::Direct));
    assert_eq!(paths.limit(), Some(1_328));
}

#[test]
fn what_was_found_by_a_relay_bounds_that_way_alone() {
    let config = config("", &[ENDPOINT]);
    let mut paths = PathMtu::new(&config);
    paths.note(KEY, narrow(1_376));
    paths.handshake(&KEY);
    paths.take_change();
    assert!(paths.took_way(KEY, Way::Relay));
    assert!(paths.take_change());
    let followed: Vec<_> = paths.followed().collect();
    assert_eq!(followed, [KEY], "the way is probed");
    paths.note(KEY, narrow(1_200));
    assert_eq!(paths.limit(), Some(1_200));
    let warning = paths.warnings(1_200).next().unwrap();
    assert!(warning.contains("1200 bytes"), "{warning}");
    let noted = paths.noted(&config);
    assert!(paths.took_way(KEY, Way::Direct));
    assert_eq!(paths.limit(), Some(1_376));
    // Another supervisor knows both, and which way it was.
    let mut paths = PathMtu::new(&config);
    paths.restore(&config, &noted);
    assert_eq!(paths.limit(), Some(1_200));
    assert_eq!(paths.noted(&config), noted);
}

#[test]
fn with_turn_servers_every_peer_with_an_endpoint_is_followed() {
    let turn = "#convoy: Turn = turn:192.0.2.9 Username = a PasswordFile = turn.password\n";
    let with = config(turn, &[ENDPOINT, ""]);
    let mut paths = PathMtu::new(&with);
    paths.handshake(&KEY);
    assert_eq!(paths.followed().collect::<Vec<_>>(), [KEY]);
    paths.replace(&with, &config("", &[ENDPOINT, ""]));
    assert_eq!(paths.followed().next(), None);
}

#[test]
fn another_network_forgets_everything() {
    let config = config("", &[ENDPOINT]);
    let mut paths = PathMtu::new(&config);
    paths.handshake(&KEY);
    assert!(!paths.network_changed(&config));
    paths.handshake(&KEY);
    paths.note(KEY, narrow(1_328));
    assert!(paths.network_changed(&config));
    assert_eq!(paths.limit(), None);
    assert!(paths.ready.is_empty());
    assert_eq!(paths.followed().collect::<Vec<_>>(), [KEY]);
}

#[test]
fn another_configuration_keeps_what_was_found_of_peers_with_the_same_endpoints() {
    let former = config("", &[ENDPOINT, ENDPOINT]);
    let mut paths = PathMtu::new(&former);
    for peer in [KEY, OTHER] {
        paths.handshake(&peer);
        paths.note(peer, narrow(1_328));
    }
    paths.ready.clear();
    paths.take_change();
    let same = config("ListenPort = 7\n", &[ENDPOINT, ENDPOINT]);
    paths.replace(&former, &same);
    assert_eq!(paths.found.len(), 2);
    assert_eq!(paths.followed().next(), None);
    let moved = config("", &[ENDPOINT, ELSEWHERE]);
    paths.replace(&same, &moved);
    assert_eq!(Vec::from_iter(paths.found.keys()), [&(KEY, Way::Direct)]);
    assert_eq!(paths.followed().collect::<Vec<_>>(), [OTHER]);
    let wider = config("MTU = 1500\n", &[ENDPOINT, ELSEWHERE]);
    paths.replace(&moved, &wider);
    assert_eq!(paths.limit(), Some(1_328));
    assert_eq!(paths.followed().collect::<Vec<_>>(), [KEY, OTHER]);
    paths.replace(&wider, &config("MTU = 1500\n", &[]));
    assert_eq!((paths.limit(), paths.followed().next()), (None, None));
}

#[test]
fn a_probe_that_is_stopped_starts_over_unless_the_peer_has_moved() {
    let config = config(
        "Address = 10.8.0.2/24\n",
        &["Endpoint = 192.0.2.1:1\nAllowedIPs = 0.0.0.0/0\n"],
    );
    let mut paths = PathMtu::new(&config);
    paths.begin(&config, 1_420);
    assert!(paths.running.is_none(), "there was no handshake");
    paths.handshake(&KEY);
    paths.begin(&config, 1_420);
    assert!(paths.running.is_some() && paths.ready.is_empty());
    paths.stop();
    assert!(paths.running.is_none());
    paths.begin(&config, 1_420);
    assert!(paths.running.is_some());
    paths.moved(KEY);
    assert!(paths.running.is_none() && paths.ready.is_empty());
    paths.handshake(&KEY);
    paths.moved(KEY);
    assert!(paths.ready.is_empty());
    assert_eq!(paths.followed().collect::<Vec<_>>(), [KEY]);
}

#[test]
fn the_mtu_stays_large_enough_for_ipv6_addresses_and_routes() {
    for (interface, peer, expected) in [
        ("Address = 10.8.0.2/24\n", "AllowedIPs = 0.0.0.0/0\n", 576),
        (
            "Address = 10.8.0.2/24\n",
            "AllowedIPs = 0.0.0.0/0, ::/0\n",
            1_280,
        ),
        ("Address = fd08::2/64\n", "AllowedIPs = 0.0.0.0/0\n", 1_280),
    ] {
        assert_eq!(floor(&config(interface, &["", peer])), expected, "{peer}");
    }
}

#[test]
fn many_peers_are_not_all_followed() {
    let lines = vec![ENDPOINT; MAX_PEERS + 9];
    let paths = PathMtu::new(&config("", &lines));
    assert_eq!(paths.followed().count(), MAX_PEERS);
}

/// A configuration with the peers 1, 2 and so on.
pub(super) fn config(interface: &str, peers: &[&str]) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    let key = |number: u8| convoy_config::encode_key(&[number; 32]);
    let peers = (1..).zip(peers).map(|(number, lines)| {
        let key = key(number);
        format!("[Peer]\nPublicKey = {}\n{lines}", key.as_str())
    });
    let peers: String = peers.collect();
    let own = key(72);
    let own = own.as_str();
    let text = format!("[Interface]\nPrivateKey = {own}\n{interface}{peers}");
    fs::write(&path, text).unwrap();
    fs::write(directory.path().join("turn.password"), "secret\n").unwrap();
    convoy_config::read(&path).unwrap().config
}

fn narrow(largest: u32) -> Outcome {
    let target = TARGET.into();
    Outcome::Narrow { target, largest }
}
