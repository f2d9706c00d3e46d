use std::fs;

use convoy_config::Located;
use convoy_proto::config::{PresharedKey, PrivateKey};

use super::*;

#[test]
fn what_the_file_does_not_say_stays_as_somebody_has_set_it() {
    let file = config(
        None,
        &[(1, "10.0.0.1/32"), (2, "10.0.0.2/32"), (3, "10.0.0.3/32")],
    );
    let mut running = config(
        Some(7),
        &[(1, "10.0.0.1/32"), (2, "10.0.0.9/32"), (4, "10.0.0.4/32")],
    );
    running.peers[0].preshared_key = Some(Located::nowhere(PresharedKey([5; 32])));
    running.peers[0].persistent_keepalive = Some(Located::nowhere(25));
    let merged = Given::of(&file).merged(&file, &running);
    same(&merged, &running);
    // The third was removed, the fourth added.
    let keys = merged.peers.iter().map(|it| it.public_key.value.0[0]);
    assert_eq!(keys.collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn what_the_file_changes_prevails() {
    let old = config(Some(1), &[(1, "10.0.0.1/32"), (2, "10.0.0.2/32")]);
    let running = config(Some(2), &[(1, "10.0.0.8/32"), (5, "10.0.0.5/32")]);
    let new = config(
        Some(3),
        &[(1, "10.0.0.7/32"), (2, "10.0.0.6/32"), (6, "10.0.0.5/32")],
    );
    let merged = Given::of(&old).merged(&new, &running);
    assert_eq!(merged.interface.private_key, new.interface.private_key);
    assert_eq!(merged.peers[1..3], new.peers[1..3]);
    // As `reload` does it: prefix by prefix.
    let prefixes = merged.peers[0].allowed_ips.iter();
    let prefixes: Vec<_> = prefixes.map(|it| it.address().to_string()).collect();
    assert_eq!(prefixes, ["10.0.0.8", "10.0.0.7"]);
    // The peer that somebody has added stays, without what the file gives another one.
    assert_eq!(merged.peers[3].public_key.value.0[0], 5);
    assert!(merged.peers[3].allowed_ips.is_empty());
}

#[test]
fn what_the_file_takes_away_goes() {
    let old = config(Some(1), &[(1, "10.0.0.1/32"), (2, "10.0.0.2/32")]);
    let new = config(None, &[(1, "10.0.0.1/32")]);
    same(&Given::of(&old).merged(&new, &old), &new);
}

#[test]
fn without_any_change_it_is_the_file() {
    let file = config(Some(1), &[(1, "10.0.0.1/32"), (2, "10.0.0.2/32")]);
    same(&Given::of(&file).merged(&file, &file), &file);
}

#[test]
fn a_port_that_somebody_has_set_stays_until_the_file_changes_it() {
    let with_port = |port| {
        let mut config = config(None, &[]);
        config.interface.listen_port = Some(Located::nowhere(port));
        config
    };
    let port = |config: &Config| config.interface.listen_port.as_ref().map(|it| it.value);
    let given = Given::of(&with_port(1));
    assert_eq!(port(&given.merged(&with_port(1), &with_port(2))), Some(2));
    assert_eq!(port(&given.merged(&with_port(3), &with_port(2))), Some(3));
    // A tunnel without a configured port has one, too.
    let none = config(None, &[]);
    assert_eq!(port(&Given::of(&none).merged(&none, &with_port(2))), None);
}

#[test]
fn its_text_is_read_again_and_holds_no_key() {
    let file = config(Some(7), &[(1, "10.0.0.1/32"), (2, "10.0.0.2/32")]);
    let given = Given::of(&file);
    let text = given.to_text();
    assert_eq!(Given::parse(&text), Some(given));
    assert!(!text.contains(encode_key(&[7; 32]).as_str()));
    for bad in [
        "",
        "convoy-given 2\n",
        "convoy-given 1\nx 1\n",
        "convoy-given 1\n",
        &format!("{text}x"),
    ] {
        assert_eq!(Given::parse(bad), None, "{bad}");
    }
}

fn config(key: Option<u8>, peers: &[(u8, &str)]) -> Config {
    let mut config = empty();
    config.interface.private_key = key.map(|key| Located::nowhere(PrivateKey([key; 32])));
    for (key, network) in peers {
        let (address, prefix) = network.split_once('/').unwrap();
        let mut peer = Peer::new(Located::nowhere(PublicKey([*key; 32])));
        let network =
            Prefix::network_of(address.parse().unwrap(), prefix.parse().unwrap()).unwrap();
        peer.allowed_ips.push(Located::nowhere(network));
        config.peers.push(peer);
    }
    config
}

fn empty() -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wg0.conf");
    fs::write(&path, "[Interface]\n").unwrap();
    convoy_config::read(&path).unwrap().config
}

fn same(one: &Config, other: &Config) {
    assert_eq!(one.interface.private_key, other.interface.private_key);
    assert_eq!(one.peers, other.peers);
}
