use super::*;

const PEERS: &str = "[Peer]\nPublicKey = 1\nAllowedIPs = 10.8.0.0/24, fd08::/64\n";

#[test]
fn a_file_with_direct_peers_becomes_a_message() {
    let lines = "#convoy: Direct = 3 10.8.0.3/32, fd08::3/128 PresharedKeyFile = psk\n#convoy: Direct = 4 10.8.0.4\n";
    let config = config(&format!("{PEERS}{lines}"));
    let mut directs = Directs::default();
    directs.begin(true);
    assert!(directs.lacks_hosts(&config));
    directs.note_hosts(addresses(&["2001:db8::1", "192.0.2.1"]));
    assert!(!directs.lacks_hosts(&config));
    let stun: Vec<SocketAddr> = vec!["192.0.2.9:3478".parse().unwrap()];
    let news = directs.news(&config, stun.clone()).unwrap();
    assert_eq!(news.own, addresses(&["10.8.0.2", "fd08::2"]));
    assert_eq!(news.hosts, addresses(&["2001:db8::1", "192.0.2.1"]));
    assert_eq!(news.stun, stun);
    let [first, second] = &news.peers[..] else {
        panic!("{news:?}")
    };
    assert_eq!((first.peer, first.hub), (key(3), key(1)));
    assert_eq!(first.preshared_key.as_ref().unwrap().0.0, [9; 32]);
    let prefixes = ["10.8.0.3/32", "fd08::3/128"].map(|it| it.parse().unwrap());
    assert_eq!(first.allowed_ips, prefixes);
    assert_eq!((second.peer, &second.preshared_key), (key(4), &None));
    directs.note_told(news);
    assert_eq!(directs.news(&config, stun), None);
}

#[test]
fn only_what_has_changed_is_told_again() {
    let config = config(&format!("{PEERS}#convoy: Direct = 3 10.8.0.3\n"));
    let mut directs = Directs::default();
    directs.begin(true);
    let first = directs.news(&config, Vec::new()).unwrap();
    directs.note_told(first);
    directs.note_hosts(Vec::new());
    assert_eq!(directs.news(&config, Vec::new()), None);
    directs.note_hosts(addresses(&["192.0.2.1"]));
    let second = directs.news(&config, Vec::new()).unwrap();
    assert_eq!(second.hosts, addresses(&["192.0.2.1"]));
    directs.note_told(second);
    assert_eq!(directs.news(&config, Vec::new()), None);
    let mapped: SocketAddr = "198.51.100.7:51820".parse().unwrap();
    directs.note_mapped(Some(mapped));
    let third = directs.news(&config, Vec::new()).unwrap();
    assert_eq!(third.mapped, [mapped]);
    directs.note_told(third);
    assert_eq!(directs.news(&config, Vec::new()), None);
    directs.begin(true);
    assert!(
        directs.news(&config, Vec::new()).is_some(),
        "another process"
    );
}

#[test]
fn a_process_without_direct_peers_is_told_nothing_unless_it_had_some() {
    let config = config(PEERS);
    let mut directs = Directs::default();
    assert!(!directs.lacks_hosts(&config));
    directs.note_hosts(addresses(&["192.0.2.1"]));
    directs.begin(true);
    let stun = || vec!["192.0.2.9:3478".parse().unwrap()];
    assert_eq!(directs.news(&config, stun()), None);
    directs.begin(false);
    let nothing = DirectPaths::default();
    assert_eq!(directs.news(&config, stun()), Some(nothing.clone()));
    directs.note_told(nothing);
    assert_eq!(directs.news(&config, stun()), None);
}

#[test]
fn a_direct_peer_that_becomes_a_peer_is_let_go_first() {
    let direct = "#convoy: Direct = 3 10.8.0.3\n#convoy: Direct = 4 10.8.0.4\n";
    let former = config(&format!("{PEERS}{direct}"));
    let mut directs = Directs::default();
    assert_eq!(directs.before(&former), None);
    directs.begin(true);
    let told = directs.news(&former, Vec::new()).unwrap();
    directs.note_told(told);
    assert_eq!(directs.before(&former), None);
    let other = config(&format!("{PEERS}[Peer]\nPublicKey = 3\n"));
    let before = directs.before(&other).unwrap();
    let left: Vec<_> = before.peers.iter().map(|direct| direct.peer).collect();
    assert_eq!(left, [key(4)]);
}

#[test]
fn the_longest_message_fits_on_a_line() {
    use convoy_config::{MAX_DIRECT_PEERS, MAX_DIRECT_PREFIXES};
    use convoy_daemon::supervised::protocol::ToTunnel;
    use convoy_process::message::Message as _;

    let mut text = String::from("[Peer]\nPublicKey = 1\nAllowedIPs = ::/0\n");
    for peer in 0..MAX_DIRECT_PEERS {
        let prefix = |it| format!("2001:db8:1111:2222:3333:4444:{peer:x}:{it:x}/128");
        let prefixes: Vec<_> = (0..MAX_DIRECT_PREFIXES).map(prefix).collect();
        let number = peer + 100;
        text += &format!(
            "#convoy: Direct = {number} {} PresharedKeyFile = psk\n",
            prefixes.join(",")
        );
    }
    let config = config(&text);
    let directs = Directs::default();
    let message = ToTunnel::Directs(directs.news(&config, Vec::new()).unwrap());
    let length = serde_json::to_string(&message).unwrap().len();
    assert!(length < ToTunnel::MAX_BYTES / 2, "{length}");
}

fn addresses(all: &[&str]) -> Vec<IpAddr> {
    all.iter().map(|it| it.parse().unwrap()).collect()
}

fn key(byte: u8) -> Key {
    Key(PublicKey([byte; 32]))
}

/// A configuration with these sections; numbers in the place of keys stand for keys of such bytes.
fn config(sections: &str) -> Config {
    let encoded = |byte: u8| convoy_config::encode_key(&[byte; 32]).to_string();
    let lines = sections.lines().map(|line| {
        let words = line.split(' ').map(|word| match word.parse() {
            Ok(byte) => encoded(byte),
            Err(_) => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    });
    let sections = lines.collect::<Vec<_>>().join("\n");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    std::fs::write(directory.path().join("psk"), encoded(9)).unwrap();
    let private_key = encoded(7);
    let text = format!(
        "[Interface]\nPrivateKey = {private_key}\nAddress = 10.8.0.2/24, fd08::2/64\n{sections}\n"
    );
    std::fs::write(&path, text).unwrap();
    let loaded = convoy_config::read(&path);
    loaded.unwrap_or_else(|report| panic!("{report}")).config
}
