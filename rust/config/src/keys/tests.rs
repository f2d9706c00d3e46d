use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::*;
use crate::{Config, difference, key::Change, read_forwarding, to_wg_quick};

const OWN: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
const PEER: &str = "[Peer]\nPublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\n";
/// Another tunnel, for `Via`.
const HOP: &str = "[Interface]\nPrivateKey = 2AnoYzJg3Rcx8LtVbAs4eSpnkDWbMRmCCyALgGBmFXk=\nAddress = 10.9.0.2/32\n\
    [Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nEndpoint = 192.0.2.1:51820\nAllowedIPs = 0.0.0.0/0\n";

#[test]
fn every_key_is_documented_and_named_once() {
    for key in all() {
        let texts = [key.name, key.values, key.default, key.meaning, key.example];
        assert!(texts.iter().all(|text| !text.is_empty()), "{}", key.name);
        assert!(key.meaning.ends_with('.'), "{}", key.name);
        let same = all().filter(|it| it.name.eq_ignore_ascii_case(key.name));
        assert_eq!(same.count(), 1, "{}", key.name);
    }
}

#[test]
fn every_example_is_read_and_survives_writing_and_reading() {
    for key in of_tunnel() {
        let read = read(&file_with(key));
        let line = format!("{} = {}\n", key.head(), key.example);
        let written = to_wg_quick(&read);
        assert!(written.contains(&line), "{line}{}", *written);
        let again = self::read(&written);
        assert!(read.interface == again.interface, "{}", key.name);
        assert!(read.peers == again.peers, "{}", key.name);
        assert_eq!(*to_wg_quick(&again), *written);
    }
}

#[test]
fn every_key_of_a_forwarder_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("forward.conf");
    fs::write(directory.path().join("login"), "user:password\n").unwrap();
    for key in of_forwarder() {
        let login = directory.path().join("login").display().to_string();
        let value = key.example.replace("login", &login);
        fs::write(&path, format!("Socks5 = 1081\n{} = {value}\n", key.name)).unwrap();
        let (read, _) = read_forwarding(&path).unwrap_or_else(|report| panic!("{report}"));
        let (name, written) = read.written.last().unwrap();
        assert_eq!((*name, written), (key.name, &value));
    }
}

#[test]
fn every_key_is_noticed_by_a_comparison() {
    for key in of_tunnel() {
        let [with, without] = [read(&file_with(key)), read(&file_without(key))];
        let is_equal = with.interface == without.interface && with.peers == without.peers;
        assert!(!is_equal, "{}", key.name);
        let resolve = |peer: &crate::Peer| peer.endpoints.first().and_then(|it| it.address());
        let update = difference(&without, &with, resolve);
        let is_noticed = !update.peers.is_empty()
            || update.private_key.is_some()
            || update.listen_port.is_some()
            || update.fwmark.is_some();
        let is_of_device = match key.section() {
            // One message of the supervisor has all direct paths.
            Section::Peer => key.name != "Direct",
            Section::Interface => {
                key.name == "PrivateKeyFile" || !matches!(key.change, Change::Nothing)
            }
        };
        assert_eq!(is_noticed, is_of_device, "{}", key.name);
    }
}

#[test]
fn keys_are_found_in_any_case_and_guessed_from_misspellings() {
    let find = |word| super::find(word).map(|key| key.name);
    assert_eq!(find("allowedips"), Some("AllowedIPs"));
    assert_eq!(find("AllowedIP"), None);
    for (word, meant) in [
        ("AllowedIP", "AllowedIPs"),
        ("Adress", "Address"),
        ("PreSharedKeys", "PresharedKey"),
        ("Kilswitch", "KillSwitch"),
        ("EndPiont", "Endpoint"),
    ] {
        let found = nearest(word).map(|key| key.name);
        assert_eq!(found, Some(meant), "{word}");
    }
    assert!(nearest("Colour").is_none());
    assert!(nearest(&"PrivateKey".repeat(9)).is_none());
}

/// A file in which the key has its example, and whatever it needs to have an effect.
fn file_with(key: &Key) -> String {
    let line = format!("{} = {}\n", key.head(), key.example);
    let needed = match key.name {
        "AllowLAN" => "#convoy: KillSwitch = on\n",
        "LoginFile" => "#convoy: Socks5 = 1080\n",
        "Reverse" => "Address = 10.0.0.2/24\n",
        "Endpoints" => "Endpoint = 192.0.2.7:51820\n",
        _ => "",
    };
    match (key.name, key.section()) {
        ("Direct", _) => {
            format!("{OWN}Address = 10.0.0.2/24\n{PEER}AllowedIPs = 10.0.0.0/24\n{line}")
        }
        ("PortForward", _) => format!("{OWN}{line}{PEER}AllowedIPs = 10.2.0.1/32\n"),
        ("PrivateKey" | "PrivateKeyFile", _) => format!("[Interface]\n{line}{PEER}"),
        ("PublicKey", _) => format!("{OWN}[Peer]\n{line}"),
        (_, Section::Interface) => format!("{OWN}{needed}{line}{PEER}"),
        (_, Section::Peer) => format!("{OWN}{PEER}{needed}{line}"),
    }
}

/// The same file without the key; with another where there must be one.
fn file_without(key: &Key) -> String {
    let line = format!("{} = {}\n", key.head(), key.example);
    match key.name {
        "PublicKey" => format!("{OWN}{PEER}"),
        _ => file_with(key).replace(&line, ""),
    }
}

fn read(text: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    for (name, contents) in [
        (
            "private.key",
            "2AnoYzJg3Rcx8LtVbAs4eSpnkDWbMRmCCyALgGBmFXk=\n",
        ),
        (
            "preshared.key",
            "/UwcSPg38hW/D9Y3tcS1FOV0K1wuURMbS0sesJEP5ak=\n",
        ),
        ("login", "user:password\n"),
        ("turn.password", "hunter2\n"),
        ("hop.conf", HOP),
        ("wg0.conf", text),
    ] {
        write_private(&directory.path().join(name), contents);
    }
    let loaded = crate::read(&path).unwrap_or_else(|report| panic!("{}", report.render(false)));
    loaded.config
}

fn write_private(path: &Path, contents: &str) {
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
