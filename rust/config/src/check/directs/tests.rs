use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;
use crate::{Loaded, Report, encode_key};

/// The public key of the private key of sevens.
const OWN: &str = "PUBLIC";

#[test]
fn a_direct_peer_is_read_with_its_key_file() {
    let text = file(&[
        "Direct = 3 10.0.0.3/32, 10.0.9.0/28, fd00::3 presharedkeyfile = psk",
        "Direct = 4 fd00::4/128",
    ]);
    let config = read(&text).unwrap().config;
    let [first, second] = &config.peers[0].directs[..] else {
        panic!()
    };
    assert_eq!(first.public_key.0, [3; 32]);
    let shown: Vec<_> = first.allowed_ips.iter().map(|it| it.to_string()).collect();
    assert_eq!(shown, ["10.0.0.3/32", "10.0.9.0/28", "fd00::3/128"]);
    assert_eq!(first.preshared_key.as_ref().unwrap().0, [9; 32]);
    assert!(second.preshared_key.is_none() && second.preshared_key_file.is_none());
    let (file, line, column) = config.files.position(first.public_key.at).unwrap();
    assert_eq!(
        (file.file_name().unwrap().to_str(), line, column),
        (Some("wg0.conf"), 7, 19)
    );
}

#[test]
fn a_direct_peer_of_a_drop_in_is_read_beside_its_key_file() {
    let folder = folder(&file(&[]));
    let drop_ins = folder.path().join("wg0.d");
    fs::create_dir(&drop_ins).unwrap();
    write(&drop_ins.join("secret"), &encode_key(&[8; 32]));
    let peer = format!(
        "[Peer]\nPublicKey = {}\nAllowedIPs = 10.1.0.0/24\n#convoy: Direct = {} 10.1.0.3/32 PresharedKeyFile = secret\n",
        *encode_key(&[20; 32]),
        *encode_key(&[3; 32])
    );
    write(&drop_ins.join("a.conf"), &peer);
    let config = crate::read(&folder.path().join("wg0.conf")).unwrap().config;
    let direct = &config.peers[2].directs[0];
    assert_eq!(direct.preshared_key.as_ref().unwrap().0, [8; 32]);
}

#[test]
fn another_key_file_or_key_or_prefix_is_a_difference() {
    let peers = |line: &str| read(&file(&[line])).unwrap().config.peers;
    let former = peers("Direct = 3 10.0.0.3/32");
    assert!(former == peers("direct = 3 \t10.0.0.3 "));
    for other in [
        "Direct = 4 10.0.0.3/32",
        "Direct = 3 10.0.0.4/32",
        "Direct = 3 10.0.0.3/32, fd00::3",
        "Direct = 3 10.0.0.3/32 PresharedKeyFile = psk",
        "Direct = 3 10.0.0.3/32 PresharedKeyFile = zeros",
    ] {
        assert!(former != peers(other), "{other}");
    }
}

#[test]
fn a_line_that_cannot_be_understood_is_refused_at_its_place() {
    for (line, expected) in [
        ("Direct = 3", "expected a public key, then prefixes"),
        ("Direct = x 10.0.0.3/32", "expected 32 bytes in base64"),
        ("Direct = 10.0.0.3/32 3", "expected 32 bytes in base64"),
        (
            "Direct = 3 10.0.0.0/24",
            "expected the peer's address first",
        ),
        ("Direct = 3 10.0.0.3/32, 10.0.0.9/24", "write 10.0.0.0/24"),
        ("Direct = 3 10.0.0.3/32,", "remove the extra comma"),
        (
            "Direct = 3 10.0.0.3/32 10.0.9.0/24",
            "separate the prefixes by commas",
        ),
        ("Direct = 3 10.0.0.3/33", "expected a prefix length"),
        (
            "Direct = 3 PresharedKeyFile = psk",
            "expected a prefix before this",
        ),
        (
            "Direct = 3 10.0.0.3/32 PresharedKeyFile =",
            "expected the path of a file",
        ),
        (
            "Direct = 3 10.0.0.3/32 PresharedKey = 9",
            "expected `PresharedKeyFile` before the `=`",
        ),
        (
            "Direct = 3 10.0.0.3/32 PresharedKeyFile = none",
            "cannot read the key file",
        ),
        (
            "Direct = 3 10.0.0.3/32 PresharedKeyFile = wg0.conf",
            "invalid key file",
        ),
    ] {
        let report = refused(&file(&[line]));
        assert!(report.contains(expected), "{line}: {report}");
        assert!(report.contains("wg0.conf:7:"), "{line}: {report}");
    }
}

#[test]
fn a_direct_peer_that_contradicts_others_is_refused_at_both_places() {
    let twice = ["Direct = 3 10.0.0.3/32", "Direct = 3 10.0.0.4/32"];
    let claimed = ["Direct = 3 10.0.0.3/32", "Direct = 4 10.0.0.4, 10.0.0.3/32"];
    let own = format!("Direct = {OWN} 10.0.0.3/32");
    for (lines, expected) in [
        (&twice[..], "has the public key of another peer"),
        (&claimed[..], "two direct peers claim the same prefix"),
        (
            &["Direct = 1 10.0.0.3/32"],
            "has the public key of another peer",
        ),
        (
            &["Direct = 2 10.0.0.3/32"],
            "has the public key of another peer",
        ),
        (&[own.as_str()], "is the machine itself"),
        (&["Direct = 3 192.0.2.3/32"], "is not within `AllowedIPs`"),
        (
            &["Direct = 3 10.0.0.3/32, ::/0"],
            "is not within `AllowedIPs`",
        ),
        (&["Direct = 3 10.0.0.77/32"], "belongs to another peer"),
        (&["Direct = 3 10.2.0.3/32"], "is not within `AllowedIPs`"),
    ] {
        let report = refused(&file(lines));
        assert!(report.contains(expected), "{lines:?}: {report}");
    }
    let without = file(&["Direct = 3 fd00::3"]).replace(", fd00::2/64", "");
    assert!(refused(&without).contains("no IPv6 address for a direct peer"));
}

#[test]
fn there_are_no_more_direct_peers_than_the_tunnel_takes() {
    let lines = |count: usize| {
        let lines = (0..count).map(|it| format!("Direct = {} 10.0.1.{it}/32", it + 100));
        let lines: Vec<_> = lines.collect();
        file(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    };
    read(&lines(MAX_DIRECT_PEERS)).unwrap();
    let report = refused(&lines(MAX_DIRECT_PEERS + 1));
    assert!(report.contains("more than 64 direct peers"), "{report}");
}

#[test]
fn a_direct_peer_has_no_more_prefixes_than_the_bound() {
    let line = |count: usize| {
        let prefixes: Vec<_> = (1..=count).map(|it| format!("10.0.1.{it}")).collect();
        file(&[&format!("Direct = 3 {}", prefixes.join(","))])
    };
    read(&line(crate::MAX_DIRECT_PREFIXES)).unwrap();
    let report = refused(&line(crate::MAX_DIRECT_PREFIXES + 1));
    assert!(report.contains("more than 64 prefixes"), "{report}");
}

#[test]
fn what_serves_direct_peers_alone_is_warned_about_without_one() {
    let warnings = |line: &str, lines: &[&str]| {
        let line = format!("#convoy: {line}\nAddress");
        let text = file(lines).replacen("Address", &line, 1);
        read(&text).unwrap().warnings.render(false)
    };
    for line in ["Stun = 192.0.2.9", "PortMap = yes"] {
        let key = line.split(' ').next().unwrap();
        let expected = format!("`{key}` has no effect");
        assert!(warnings(line, &[]).contains(&expected), "{line}");
        let useful = warnings(line, &["Direct = 3 10.0.0.3"]);
        assert!(!useful.contains(&expected), "{line}");
    }
    assert!(!warnings("PortMap = no", &[]).contains("`PortMap`"));
}

#[test]
fn a_stun_server_needs_no_port() {
    let line =
        "Stun = stun.example.org, 192.0.2.9:19302, 2001:db8::9, [2001:db8::9], [2001:db8::9]:5";
    let text = file(&[]).replace(
        "Address",
        &format!("#convoy: {line}\n#convoy: Stun = 192.0.2.7\nAddress"),
    );
    let config = read(&text).unwrap().config;
    let servers = config.interface.stun.iter().map(|it| it.to_string());
    let expected = [
        "stun.example.org:3478",
        "192.0.2.9:19302",
        "[2001:db8::9]:3478",
        "[2001:db8::9]:3478",
        "[2001:db8::9]:5",
        "192.0.2.7:3478",
    ];
    assert_eq!(servers.collect::<Vec<_>>(), expected);
    for bad in [
        "a/b",
        "stun.example.org:0",
        "[stun.example.org]",
        "[::1",
        "fe80::1%e",
        "a:b:c",
        "10.1",
    ] {
        let line = format!("#convoy: Stun = {bad}\nAddress");
        let report = refused(&file(&[]).replace("Address", &line));
        assert!(
            report.contains("invalid value for `Stun`"),
            "{bad}: {report}"
        );
    }
}

/// A file with lines in the section of a hub; numbers in the place of keys stand for keys of such bytes.
fn file(lines: &[&str]) -> String {
    let mut text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.2/24, fd00::2/64\n[Peer]\nPublicKey = {}\n\
         AllowedIPs = 10.0.0.0/16, fd00::/64\n",
        *encode_key(&[7; 32]),
        *encode_key(&[1; 32])
    );
    for line in lines {
        let words = line.splitn(4, ' ').map(|word| match word.parse() {
            Ok(byte) => encode_key(&[byte; 32]).to_string(),
            Err(_) if word == OWN => encode_key(&own().0).to_string(),
            Err(_) => word.to_owned(),
        });
        let words: Vec<_> = words.collect();
        text += &format!("#convoy: {}\n", words.join(" "));
    }
    let other = encode_key(&[2; 32]);
    text + &format!(
        "[Peer]\nPublicKey = {}\nAllowedIPs = 10.0.0.77, 10.2.0.0/24\n",
        *other
    )
}

fn own() -> convoy_types::PublicKey {
    let private_key = crate::keys::clamped([7; 32]);
    let interface = Interface {
        private_key: Some(Located::nowhere(private_key)),
        ..Interface::default()
    };
    own_key(&interface).unwrap()
}

fn refused(text: &str) -> String {
    match read(text) {
        Ok(loaded) => panic!("{text}: {:?}", loaded.warnings),
        Err(report) => report.render(false),
    }
}

fn read(text: &str) -> Result<Loaded, Report> {
    crate::read(&folder(text).path().join("wg0.conf"))
}

fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("wg0.conf"), text);
    write(&folder.path().join("psk"), &encode_key(&[9; 32]));
    write(&folder.path().join("zeros"), &encode_key(&[0; 32]));
    folder
}

fn write(path: &std::path::Path, contents: &str) {
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
