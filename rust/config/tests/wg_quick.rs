//! Checks that Convoy accepts the files that the installed wg-quick and wg accept, and no others.
//!
//! `wg-quick strip` needs root; `wg setconf` parses its file before it looks for the interface, so
//! its message tells a bad file from an absent interface.

use std::{
    fs,
    process::{Command, Output},
};

use tempfile::TempDir;

const PUBLIC: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

/// Lines of `[Interface]` on which wg and Convoy agree.
const INTERFACE: &[&str] = &[
    "PrivateKey = K",
    "privatekey=K",
    "P r i v a t e K e y = K",
    "PrivateKey = yAnz5TF+",
    "PrivateKey =",
    "PrivateKey",
    "PrivateKey yAnz5TF+",
    "ListenPort = 0",
    "ListenPort = 65535",
    "ListenPort = a",
    "FwMark = off",
    "FwMark = 0xFE0",
    "FwMark = 0XFF",
    "FwMark = -1",
    "FwMark = 4294967296",
    "FwMark = 0x",
    "Address =",
    "Address = 10.0.0.1/24 , , fd00::1",
    "DNS = 1.1.1.1, corp.example",
    "MTU =",
    "MTU = 1400 # comment",
    "Table = off",
    "Table =",
    "PreUp =",
    "PostUp = echo %i; true",
    "SaveConfig = true",
    "SaveConfig = FALSE",
    "SaveConfig = yes",
    "SaveConfig =",
    "Colour = red",
    "AllowedIPs = ::/0",
    "PublicKey = xTIBA5rb",
    "# comment",
    "   ",
    "#convoy: KillSwitch = on",
    "x",
    "=",
    "[Peer",
    "[Colour]",
    "MTU = 1400\r",
    "\tListenPort\t=\t1",
    "[Interface]",
    "ListenPort = 1 2",
];

/// Lines of `[Peer]` on which wg and Convoy agree.
const PEER: &[&str] = &[
    "PresharedKey = K",
    "PresharedKey = yAnz5TF+",
    "AllowedIPs =",
    "AllowedIPs = 10.0.0.1/24",
    "AllowedIPs = 10.0.0.1",
    "AllowedIPs = ::/0,0.0.0.0/0",
    "AllowedIPs = ::/0,",
    "AllowedIPs = ,::/0",
    "AllowedIPs = 10.0.0.0/33",
    "AllowedIPs = ::/129",
    "AllowedIPs = 10.0.0.0/",
    "AllowedIPs = 10/8",
    "AllowedIPs = 10.0.0.0/0x8",
    "AllowedIPs = 10 . 0.0.0 / 8",
    "AllowedIPs = ::/0 ::/1",
    "AllowedIPs = 010.0.0.0/8",
    "AllowedIPs = 10.0.0.0/08",
    "AllowedIPs = +10.0.0.0/8",
    "AllowedIPs = fd00::1%eth0/128",
    "AllowedIPs = ::ffff:1.2.3.4",
    "Endpoint = 192.0.2.1:1",
    "Endpoint = [2001:db8::1]:1",
    "Endpoint = 2001:db8::1:1",
    "Endpoint = [2001:db8::1]",
    "Endpoint = [2001:db8::1:1",
    "Endpoint = 192.0.2.1",
    "Endpoint = :1",
    "Endpoint = 192.0.2.1:",
    "Endpoint =",
    "PersistentKeepalive = off",
    "PersistentKeepalive = 65535",
    "PersistentKeepalive = 65536",
    "PersistentKeepalive = 1s",
    "PersistentKeepalive = 0",
    "Address = 10.0.0.1",
    "MTU = 1400",
    "PostUp = true",
    "ListenPort = 1",
    "Colour = red",
    "a = b = c",
    "#convoy: Endpoints = 192.0.2.1:1",
    "PERSISTENTKEEPALIVE=1#comment",
    "ListenPort",
];

#[test]
fn wg_and_convoy_agree_on_single_lines() {
    let Some(directory) = directory("wg_and_convoy_agree_on_single_lines") else {
        return;
    };
    let mut disagreements = Vec::new();
    let interface = INTERFACE
        .iter()
        .map(|line| format!("[Interface]\n{line}\n"));
    let peer = PEER
        .iter()
        .map(|line| format!("[Interface]\n[Peer]\nPublicKey = P\n{line}\n"));
    for text in interface.chain(peer) {
        let text = with_keys(&text);
        let (ours, theirs) = (convoy(&directory, &text), wg(&directory, &text));
        if ours.is_ok() != theirs.is_ok() {
            disagreements.push(format!("{text:?}\n  Convoy: {ours:?}\n  wg: {theirs:?}"));
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}

#[test]
fn wg_and_convoy_agree_on_files() {
    let Some(directory) = directory("wg_and_convoy_agree_on_files") else {
        return;
    };
    for text in [
        "[Interface]\nPrivateKey = K\n\n[Peer]\nPublicKey = P\nAllowedIPs = ::/0",
        "[Interface]\n[Peer]\nAllowedIPs = ::/0",
        "[Interface]\n[Peer]\nPublicKey = P\n[Peer]\n",
        "ListenPort = 1\n[Interface]",
        "[Peer]\nPublicKey = P\n[Interface]\nMTU = 1400",
        "[Interface]\nMTU = 1400\n[Peer]\nPublicKey = P\n[Interface]\nTable = off",
        "[Interface]\r\nMTU = 1400\r\n[Peer]\r\nPublicKey = P\r\n",
        "[Interface]\nPrivateKey = K\nPrivateKey = K\nMTU = 1\nMTU = 1400",
        "# only\n[Interface] # a\n# comment = [Peer]\n",
        "[Interface]\n[Peer]\nPublicKey = xTIBA5rboUvnH4ht",
    ] {
        let text = with_keys(text);
        let (ours, theirs) = (convoy(&directory, &text), wg(&directory, &text));
        let is_exception = text.contains("MTU = 1\n");
        assert_eq!(
            ours.is_ok() || is_exception,
            theirs.is_ok(),
            "{text}\n{ours:?}\n{theirs:?}"
        );
    }
}

#[test]
fn the_documented_exceptions_are_exceptions() {
    let Some(directory) = directory("the_documented_exceptions_are_exceptions") else {
        return;
    };
    let peer = "[Interface]\n[Peer]\nPublicKey = P\n";
    let refused = [
        "".to_owned(),
        "[Interface]\nListenPort = 65536".to_owned(),
        "[Interface]\nMTU = x".to_owned(),
        "[Interface]\nAddress = 10.1".to_owned(),
        "[Interface]\nPrivateKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned(),
        format!("{peer}Endpoint = 192.0.2.1:0"),
        format!("{peer}Endpoint = 10.1:1"),
        format!("{peer}[Peer]\nPublicKey = P\n"),
    ];
    for text in refused {
        let text = with_keys(&text);
        assert!(wg(&directory, &text).is_ok(), "{text}");
        convoy(&directory, &text).unwrap_err();
    }
    let accepted = [
        "\u{feff}[Interface]\nMTU = 1400",
        "[ Interface ]\nMTU = 1400",
    ];
    for text in accepted {
        wg(&directory, text).unwrap_err();
        convoy(&directory, text).unwrap();
    }
}

fn with_keys(text: &str) -> String {
    text.replace("= K", &format!("= {PRIVATE}"))
        .replace("=K", &format!("={PRIVATE}"))
        .replace("= P\n", &format!("= {PUBLIC}\n"))
        .replace("= P\r", &format!("= {PUBLIC}\r"))
}

fn convoy(directory: &TempDir, text: &str) -> Result<(), String> {
    let path = directory.path().join("wg0.conf");
    fs::write(&path, text).expect("the directory is writable");
    let read = convoy_config::read(&path);
    read.map(|_| ()).map_err(|report| report.to_string())
}

/// `wg-quick strip`, then `wg setconf` for an interface that does not exist.
fn wg(directory: &TempDir, text: &str) -> Result<(), String> {
    let path = directory.path().join("wg0.conf");
    fs::write(&path, text).expect("the directory is writable");
    let stripped = run(Command::new("wg-quick").arg("strip").arg(&path));
    if !stripped.status.success() {
        return Err(String::from_utf8_lossy(&stripped.stderr).into_owned());
    }
    let path = directory.path().join("stripped");
    fs::write(&path, stripped.stdout).expect("the directory is writable");
    let set = run(Command::new("wg")
        .args(["setconf", "no-such-device"])
        .arg(&path));
    let message = String::from_utf8_lossy(&set.stderr).into_owned();
    match message.contains("Unable to modify interface") {
        true => Ok(()),
        false => Err(message),
    }
}

fn run(command: &mut Command) -> Output {
    let command = command.env("WG_ENDPOINT_RESOLUTION_RETRIES", "0");
    command.output().expect("the program runs")
}

/// A directory, if the tests can run here.
fn directory(test: &str) -> Option<TempDir> {
    if !convoy_lab::require_programs(test, &["wg", "wg-quick"]) {
        return None;
    }
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("SKIPPED {test}: wg-quick needs root");
        return None;
    }
    Some(TempDir::new().expect("/tmp is writable"))
}
