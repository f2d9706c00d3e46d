use std::{fs, net::SocketAddr};

use convoy_proto::config::{PresharedKey, PrivateKey, PublicKey};

use super::*;

#[test]
fn what_was_changed_meanwhile_is_saved() {
    let (_directory, path, config) = config(
        "ListenPort = 1\nSaveConfig = true\nAddress = 10.0.0.1/24\n",
        &["Endpoint = 192.0.2.1:1\nAllowedIPs = 10.0.0.2/32\n", ""],
    );
    let mut first = peer(1);
    first.endpoint = Some(address("198.51.100.7:7"));
    first.persistent_keepalive = 25;
    let mut third = peer(3);
    third.preshared_key = Some(PresharedKey([9; 32]));
    third.allowed_ips = vec!["10.3.0.0/16".parse().unwrap()];
    let running = RunningDevice {
        private_key: Some(PrivateKey([72; 32])),
        listen_port: 4242,
        fwmark: 7,
        peers: vec![first, third],
    };
    write(&saved(&config, &running, Some(51820)), false).unwrap();

    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("Address = 10.0.0.1/24\n"), "{text}");
    let again = convoy_config::read(&path).unwrap().config;
    let it = &again.interface;
    assert_eq!(it.listen_port.as_ref().unwrap().value, 4242);
    assert_eq!(it.fwmark.as_ref().unwrap().value, 7);
    assert!(it.private_key.is_some() && it.save_config.as_ref().unwrap().value);
    let [first, third] = &again.peers[..] else {
        panic!("{text}");
    };
    assert_eq!(
        first.endpoints[0].address(),
        Some(address("198.51.100.7:7"))
    );
    assert_eq!(first.persistent_keepalive.as_ref().unwrap().value, 25);
    assert!(first.allowed_ips.is_empty());
    assert_eq!(third.public_key.value, PublicKey([3; 32]));
    assert_eq!(third.preshared_key.as_ref().unwrap().value.0, [9; 32]);
    assert_eq!(third.allowed_ips.len(), 1);
}

#[test]
fn a_mark_that_was_chosen_and_the_addresses_of_names_are_not_saved() {
    let (_directory, _, config) = config(
        "",
        &[
            "Endpoint = vpn.example.org:1\n",
            "Endpoint = 192.0.2.1:1\n#convoy: Endpoints = 192.0.2.2:1\n",
        ],
    );
    let mut running = RunningDevice {
        private_key: None,
        listen_port: 0,
        fwmark: 51820,
        peers: vec![peer(1), peer(2)],
    };
    for peer in &mut running.peers {
        peer.endpoint = Some(address("203.0.113.9:1"));
    }
    let saved = saved(&config, &running, Some(51820));
    assert!(saved.interface.fwmark.is_none() && saved.interface.listen_port.is_none());
    assert_eq!(saved.peers[0].endpoints[0].to_string(), "vpn.example.org:1");
    assert_eq!(saved.peers[1].endpoints, config.peers[1].endpoints);
}

#[test]
fn an_address_is_saved_with_its_zone_and_only_if_it_can_be_read_again() {
    let (_directory, path, config) = config(
        "",
        &[
            "Endpoint = 192.0.2.1:1\n",
            "Endpoint = [fe80::9%lo]:5\n",
            "Endpoint = [fe80::9%lo]:5\n",
            "Endpoint = 192.0.2.4:4\n",
            "",
        ],
    );
    let lo = nix::net::if_::if_nametoindex("lo").unwrap();
    let endpoints = [
        format!("[fe80::1%{lo}]:77"),
        "192.0.2.9:99".to_owned(),
        // Its interface is gone.
        "[fe80::9%4000000000]:5".to_owned(),
        "192.0.2.4:0".to_owned(),
        format!("[fe80::5%{lo}]:5"),
    ];
    let peers = (1..).zip(&endpoints).map(|(number, endpoint)| RunningPeer {
        endpoint: Some(address(endpoint)),
        ..peer(number)
    });
    let running = RunningDevice {
        peers: peers.collect(),
        ..RunningDevice::default()
    };
    write(&saved(&config, &running, None), false).unwrap();
    let again = convoy_config::read(&path).unwrap().config;
    let shown = again.peers.iter().map(|it| it.endpoints[0].to_string());
    let expected = [
        "[fe80::1%lo]:77",
        "192.0.2.9:99",
        "[fe80::9%lo]:5",
        "192.0.2.4:4",
        "[fe80::5%lo]:5",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn what_would_not_be_valid_is_saved_beside_the_file() {
    let (directory, path, _) = config("", &["AllowedIPs = 10.0.0.2/32\n"]);
    let others = directory.path().join("wg0.d");
    fs::create_dir(&others).unwrap();
    let key = convoy_config::encode_key(&[2; 32]);
    let text = format!(
        "[Peer]\nPublicKey = {}\nAllowedIPs = 10.0.0.7/32\n",
        key.as_str()
    );
    fs::write(others.join("a.conf"), text).unwrap();
    let config = convoy_config::read(&path).unwrap().config;
    let mut first = peer(1);
    first.allowed_ips = ["10.0.0.2/32", "10.0.0.7/32"]
        .map(|it| it.parse().unwrap())
        .into();
    let running = RunningDevice {
        peers: vec![first, peer(2)],
        ..RunningDevice::default()
    };
    let remark = write(&saved(&config, &running, None), false)
        .unwrap()
        .unwrap();
    assert!(
        remark.contains("two peers claim the same prefix"),
        "{remark}"
    );
    let again = convoy_config::read(&path).unwrap().config;
    let prefixes = again.peers.iter().flat_map(|it| &it.allowed_ips);
    let prefixes: Vec<_> = prefixes.map(|it| it.to_string()).collect();
    assert_eq!(prefixes, ["10.0.0.2/32", "10.0.0.7/32"]);
    let beside = fs::read_to_string(path.with_file_name("wg0.conf.saved")).unwrap();
    assert!(
        beside.contains("AllowedIPs = 10.0.0.2/32, 10.0.0.7/32"),
        "{beside}"
    );
}

/// A configuration in a file, with the peers 1, 2 and so on.
fn config(interface: &str, peers: &[&str]) -> (tempfile::TempDir, std::path::PathBuf, Config) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    let key = |number: u8| convoy_config::encode_key(&[number; 32]);
    let peers = (1..).zip(peers).map(|(number, lines)| {
        let key = key(number);
        format!("[Peer]\nPublicKey = {}\n{lines}", key.as_str())
    });
    let peers: String = peers.collect();
    let text = format!(
        "[Interface]\nPrivateKey = {}\n{interface}{peers}",
        key(72).as_str()
    );
    fs::write(&path, text).unwrap();
    let config = convoy_config::read(&path).unwrap().config;
    (directory, path, config)
}

fn peer(number: u8) -> RunningPeer {
    RunningPeer::new(PublicKey([number; 32]))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
