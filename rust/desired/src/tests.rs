use std::{fs, path::PathBuf};

use convoy_host::Prefix;
use convoy_proto::config::{PresharedKey, PrivateKey, PublicKey};

use super::*;

#[test]
fn a_configuration_becomes_the_state_of_the_host() {
    let config = config(
        "Address = 10.9.0.2/24, fd09::2/64\nDNS = 10.9.0.1, example.org, ~corp.example\nMTU = 1400\n\
         Table = 1234\nFwMark = 0x55\n#convoy: KillSwitch = persistent\n#convoy: AllowLAN = yes\n\
         #convoy: ExcludedIPs = 10.20.0.0/16, local\n",
        &[
            "AllowedIPs = 0.0.0.0/0\n",
            "AllowedIPs = 10.3.0.0/16, ::/0\n",
        ],
    );
    let endpoints = vec!["192.0.2.1".parse().unwrap()];
    let resolvers = vec!["192.168.1.1".parse().unwrap()];
    let stun = vec!["192.0.2.9".parse().unwrap()];
    let outside = Outside {
        endpoints: endpoints.clone(),
        resolvers: resolvers.clone(),
        servers: stun.clone(),
        streams: vec!["192.0.2.9:443".parse().unwrap()],
    };
    let desired = desired(&config, configured_mark(&config), outside);
    let expected = Desired {
        meets_peers: false,
        addresses: prefixes_of(&["10.9.0.2/24", "fd09::2/64"]),
        mtu: Some(1400),
        outer_headers: 0,
        mtu_at_most: None,
        endpoints,
        servers: [resolvers, stun].concat(),
        streams: vec!["192.0.2.9:443".parse().unwrap()],
        allowed: prefixes_of(&["0.0.0.0/0", "10.3.0.0/16", "::/0"]),
        table: convoy_host::Table::Number(1234),
        fwmark: Some(0x55),
        excluded: prefixes_of(&["10.20.0.0/16"]),
        exclude_local: true,
        kill_switch: Some(convoy_host::KillSwitch {
            persistent: true,
            allow_lan: true,
        }),
        asks_router: false,
        dns: Dns {
            servers: vec!["10.9.0.1".parse().unwrap()],
            search: vec!["example.org".to_owned(), "~corp.example".to_owned()],
        },
    };
    assert_eq!(desired, expected);
}

#[test]
fn an_empty_configuration_wants_nothing_of_the_host() {
    let config = config("FwMark = off\n", &[]);
    assert_eq!(configured_mark(&config), None);
    let desired = desired(&config, None, Outside::default());
    assert_eq!(desired, Desired::default());
}

#[test]
fn a_new_tunnel_gets_everything_and_loses_what_it_had() {
    let config = config(
        "ListenPort = 7\n",
        &["Endpoint = 192.0.2.1:1\nAllowedIPs = 10.0.0.0/8\n"],
    );
    let update = whole(&config, Some(51820), resolve);
    assert!(update.replace_peers);
    assert_eq!(update.private_key, Some(Some(PrivateKey(KEY))));
    assert_eq!((update.listen_port, update.fwmark), (Some(7), Some(51820)));
    let [peer] = &update.peers[..] else {
        panic!("{update:?}");
    };
    assert_eq!(peer.endpoint, Some("192.0.2.1:1".parse().unwrap()));
    assert_eq!(peer.allowed_ips.len(), 1);
    assert!(peer.replace_allowed_ips && !peer.update_only);
    assert_eq!(whole(&config, None, resolve).fwmark, Some(0));
}

#[test]
fn a_running_tunnel_that_is_as_it_should_be_is_left_alone() {
    let config = config(
        "",
        &["Endpoint = 192.0.2.1:1\nAllowedIPs = 10.0.0.0/8\nPersistentKeepalive = 25\n"],
    );
    let mut peer = peer(1);
    peer.allowed_ips = vec![network("10.0.0.0", 8)];
    peer.persistent_keepalive = 25;
    // It has roamed meanwhile.
    peer.endpoint = Some("203.0.113.7:7".parse().unwrap());
    let running = RunningDevice {
        private_key: Some(PrivateKey(KEY)),
        listen_port: 40_000,
        fwmark: 51820,
        peers: vec![peer],
    };
    let update = adoption(&config, Some(51820), &running, resolve);
    assert!(update.private_key.is_none() && !update.replace_peers);
    assert!(update.listen_port.is_none() && update.fwmark.is_none());
    assert!(update.peers.is_empty(), "{update:?}");
}

#[test]
fn a_running_tunnel_gets_what_has_changed() {
    let config = config(
        "ListenPort = 7\n",
        &["Endpoint = 192.0.2.1:1\nAllowedIPs = 10.0.0.0/8\n", ""],
    );
    let mut old = peer(1);
    old.preshared_key = Some(PresharedKey([9; 32]));
    old.allowed_ips = vec![network("10.1.0.0", 16)];
    let running = RunningDevice {
        private_key: Some(PrivateKey([8; 32])),
        listen_port: 40_000,
        fwmark: 1,
        peers: vec![old, peer(3)],
    };
    let update = adoption(&config, None, &running, resolve);
    assert_eq!(update.private_key, Some(Some(PrivateKey(KEY))));
    assert_eq!((update.listen_port, update.fwmark), (Some(7), Some(0)));
    let of = |number: u8| {
        let key = PublicKey([number; 32]);
        let mut changes = update.peers.iter();
        changes.find(|change| change.public_key == key).unwrap()
    };
    // It had no address.
    assert_eq!(of(1).endpoint, Some("192.0.2.1:1".parse().unwrap()));
    assert_eq!(of(1).preshared_key, Some(None));
    assert!(of(1).update_only && !of(1).remove);
    assert!(!of(2).update_only && !of(2).remove);
    assert!(of(3).remove);
}

/// A clamped private key.
const KEY: [u8; 32] = [72; 32];

/// A configuration with the peers 1, 2 and so on.
fn config(interface: &str, peers: &[&str]) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("wg0.conf");
    let key = |number: u8| convoy_config::encode_key(&[number; 32]);
    let peers = (1..).zip(peers).map(|(number, lines)| {
        let key = key(number);
        format!("[Peer]\nPublicKey = {}\n{lines}", key.as_str())
    });
    let peers: String = peers.collect();
    let own = key(72);
    let text = format!(
        "[Interface]\nPrivateKey = {}\n{interface}{peers}",
        own.as_str()
    );
    fs::write(&path, text).unwrap();
    convoy_config::read(&path).unwrap().config
}

fn peer(number: u8) -> RunningPeer {
    RunningPeer::new(PublicKey([number; 32]))
}

fn network(address: &str, prefix: u8) -> Prefix {
    Prefix::network_of(address.parse().unwrap(), prefix).unwrap()
}

fn resolve(peer: &Peer) -> Option<SocketAddr> {
    peer.endpoints
        .first()
        .and_then(|endpoint| endpoint.address())
}

fn prefixes_of(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}
